// Another program that makes implementations ready, verifies and times them where this one asks: PyTorch's side of a
// sweep. This program stops, judges and writes the rows.
//
// One JSON object a line each way; an answer repeats the question's "number". A worker that has started says {"facts":
// {name: text, ...}}: its versions. Then
//   {"ask": "ready", "variant", "dtype", "problem": problem_record()'s}  verifies one launch and keeps it
//       -> {"errors": [{"max": E, "l2": E}, ...], "roundings": R, "note": text}, errors as Tolerance's, null for NaN;
//          "judged": text in place of errors where the result is random and was looked at in another way;
//          "wrong": text where it is wrong whatever the errors; "peak_memory_bytes" of a whole network; of a peer
//          "algorithm", and of a lossy one "lossy" and "allowed": {"max": E, "l2": E} in the tolerance's place
//          (baselines/peers)
//   {"ask": "cold", "samples": n}               -> {"us": [...]}, of one launch each with nothing in cache
//   {"ask": "warm", "samples": n, "repeats": k} -> {"us": [...]}, each the mean of k launches in one CUDA graph; "mhz":
//          the SM clock behind them, where it says
//   {"ask": "judge"}                            -> as "ready", of what the last timed launch left; the inputs of warm
//                                                  launches are others than those of cold ones
//   {"ask": "poison"}                           -> {}: outputs are NaN before the next launch
//   {"ask": "replay"}                           -> as "ready", of one more launch; asked of a plugin's worker alone
//   {"ask": "release"}                          -> {}
//   {"ask": "signature", "variant", "dtype", "problem"} -> {"signature": text}: as bench/measure/signature.h has it, or
//                                                 empty; of PyTorch its versions, and the files that run the op
//   {"ask": "peers"}                            -> {"lacking": {variant: {"wrong": other version or none, "reason"}}}
//   {"ask": "touch"}                            -> {}: of `noisefloor worker` alone; a launch of its own, of no case
// A plugin's worker also, of rows that only it has (bench/sweep/workers.h):
//   {"ask": "rows"}                             -> {"rows": [{"op", "name", "kind", "arch"}, ...]}
//   {"ask": "measure", "variant", "dtype", "problem", "counters": "off", "auto" or "require", "seed"}
//       -> {"row": {column: text, ...}, "samples": its line of samples.jsonl, "l2_error", "l2_tolerance", "note"}
// A side of `noisefloor ab --python` also; its "ready" has "variant" and "problem", a text, alone:
//   {"ask": "cases"}                            -> {"cases": [{"variant", "problem", "tolerance": relative L2}, ...]}
//   {"ask": "look"}                             -> {"outputs": digest, "reference": whether errors are to one,
//   "kernels"}
// Anything may be answered by {"failed": outcome, "reason": text}, with "lost": true where its device is gone for it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/case_counters.h"
#include "bench/measure/contender.h"
#include "bench/measure/suite.h"
#include "bench/platform/child_process.h"

namespace noisefloor {

struct WorkerOptions {
  // How long it may take before it counts as hung.
  double start_seconds = 120;   // a cold import of PyTorch reads some gigabytes
  double ready_seconds = 900;   // compiling a whole network
  double answer_seconds = 120;  // a batch of samples, of launches of seconds
  double whole_seconds = 900;   // a case from beginning to end
  double silent_seconds = 30;   // behind so many, each time, stderr gets a line that it is waited for
  // It is told the values of inputs that the op fills (tables of schedules, labels), of tensors of up to so many.
  std::int64_t most_values = 1 << 20;
  std::function<void()> before_start = {};  // throws what keeps the program from being started, at any of its starts
};

// It died, did not answer in time, or could not be started. It is gone then.
struct WorkerGone : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A program at the other end of two pipes, asked and answered line by line.
class Worker {
 public:
  using Facts = std::vector<std::pair<std::string, std::string>>;

  // `name` is for messages: "PyTorch's worker".
  Worker(std::string name, ChildCommand command, WorkerOptions options = {});
  ~Worker();

  // What it says of itself; starts it where it is not running. Throws WorkerGone, and LibraryMissing where it could not
  // be started twice in a row.
  const Facts& facts();
  const std::string& name() const { return name_; }
  const WorkerOptions& options() const { return options_; }

  // Throws WorkerGone when it is no longer there (another one is started for the next question), and by the outcome it
  // names LibraryRefused, LibraryMissing, OutOfMemory or std::runtime_error.
  nlohmann::json ask(const nlohmann::json& question, double seconds);
  bool running() const { return child_ != nullptr; }
  // Ends it. Throws WorkerGone.
  [[noreturn]] void give_up(const std::string& why);

 private:
  nlohmann::json receive(double seconds);
  void start();
  // These throw WorkerGone with how the process ended, and the last line of what it wrote to standard error.
  void send(const std::string& line);
  std::string receive_line(double seconds);  // without its end, within so many seconds
  [[noreturn]] void fail(const std::string& how);
  void read_some(std::chrono::milliseconds patience);
  std::string end(std::chrono::milliseconds patience);  // how it ended, in words

  static constexpr int kMostStarts = 2;  // in vain, one after the other
  std::string name_;
  ChildCommand command_;
  WorkerOptions options_;
  std::unique_ptr<ChildProcess> child_;  // none where it does not run
  std::string complaints_;               // the end of what it wrote to standard error
  Facts facts_;
  std::int64_t number_ = 0;  // of the last question
  int failed_starts_ = 0;
  std::string why_not_started_;
};

// A case that the worker has made ready, for as long as this lives.
class WorkerCase final : public Contender {
 public:
  WorkerCase(Worker& worker, const Case& test_case, Platform* platform = nullptr);
  // One that has no op: what "ready" asks.
  WorkerCase(Worker& worker, const nlohmann::json& ready, Tolerance tolerance);
  ~WorkerCase() override;
  WorkerCase(const WorkerCase&) = delete;

  const Verdict& verdict() const { return verdict_; }  // of its first launch
  const std::string& note() const { return note_; }
  std::optional<long> peak_memory_bytes() const { return peak_memory_bytes_; }
  const std::string& algorithm() const { return algorithm_; }
  const std::string& lossy() const { return lossy_; }
  std::vector<double> cold(int samples) override;
  std::vector<double> warm(int samples, int repeats, Edges) override;  // PyTorch's graphs have ordinary edges
  void poison(std::size_t inputs) override;                            // it changes its inputs by itself
  std::optional<double> sm_clock_mhz() override { return mhz_ ? mhz_ : Contender::sm_clock_mhz(); }
  Verdict judge() override { return ask_verdict("judge"); }
  Verdict replay() override { return of_plugin_ ? ask_verdict("replay") : Contender::replay(); }

 private:
  void make_ready(const nlohmann::json& question);
  Verdict ask_verdict(const char* question);
  Verdict judged(const nlohmann::json& answer) const;
  std::vector<double> times(const nlohmann::json& question, int samples);

  Worker* worker_;
  Tolerance tolerance_;
  bool of_plugin_ = false;
  std::optional<double> mhz_;  // behind the last warm samples
  double roundings_ = 1;
  std::string note_, algorithm_, lossy_;
  std::optional<long> peak_memory_bytes_;
  Verdict verdict_;
};

// Nothing where the worker knows of none, as one of an older build, or cannot run the case; `refuses`, where given, is
// then why it refuses. Throws WorkerGone.
std::optional<std::string> ask_signature(Worker& worker, const Case& test_case, std::string* refuses = nullptr);

// A case of a plugin, measured by its worker from beginning to end: what `result` has no text of is the worker's.
// Throws as ask() does.
void measure_whole(Worker& worker, const Case& test_case, CounterMode counters, std::uint64_t seed, CaseResult& result);

}  // namespace noisefloor
