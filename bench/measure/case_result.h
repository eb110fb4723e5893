// What is known of a case behind its measuring, and what puts it there; also what went wrong, as its row says it.
#pragma once

#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/measure/verify.h"
#include "reports/run/run_files.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {

struct Ceiling;
struct Ceilings;
struct KernelResources;
struct PlatformDescription;
struct Timing;

struct CaseResult {
  SweepRow row;
  RowSamples samples{};
  bool device_lost = false;  // the process can launch nothing more
  std::string note{};        // for the log: a baseline's chosen algorithm
  Verdict verdict{};         // of the launch before the timed ones
  bool kept = false;         // its times are of an earlier run
};

// A row of an earlier run that may still be true.
struct EarlierRow {
  SweepRow row;  // ok
  RowSamples samples = {};
};

// Puts an earlier row, whose launch is the same, in the place of `result`'s blank one: its numbers, commit and date,
// beside what today's problem files and cost say.
void keep_row(const EarlierRow& earlier, CaseResult& result);

// The phases that were taken anew in place of the earlier ones; of the others times, samples and reasons stay.
void keep_other_phases(const EarlierRow& earlier, const std::vector<std::string>& taken, Timing& timing);

// A comparison is of one date: one with a row that was not kept goes.
void forget_comparison(SweepRow& row);

// Adds its own lifetime to the seconds that the row cost (spent_s), if this run measured it.
class Spending {
 public:
  explicit Spending(CaseResult& result) : result_(result) {}
  ~Spending() {
    if (result_.kept) return;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin_;
    result_.row.spent_s = std::round(100 * (result_.row.spent_s.value_or(0) + spent.count())) / 100;
  }
  Spending(const Spending&) = delete;
  Spending& operator=(const Spending&) = delete;

 private:
  CaseResult& result_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Other programs had the cores for too long.
struct Throttled : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Failure {
  Outcome outcome = Outcome::cuda_error;
  std::string reason;
  bool lost = false;  // the device is gone for this process
};

// Of the exception that is being handled.
Failure current_failure();

// Of the launch before the timed ones: whether they may be timed.
bool take_verdict(const Verdict& verdict, CaseResult& result);
void take_samples(const Timing& timing, CaseResult& result);
void clear_times(CaseResult& result);  // only `ok` rows carry times
void add_note(const std::string& note, CaseResult& result);

// The kernels of a launch into the fields of that name, in the order in which each is first launched.
void count_kernels(std::span<const KernelResources> kernels, RowSamples& samples);

// A case's row beside its times: what it is of, why it cannot run here, what was counted, its place under the roof.
// This one has what is known before it runs.
SweepRow blank_row(const Case& test_case, const PlatformDescription& description, const std::string& arch);

// The row of a case that cannot run here, without running it: unsupported_arch, not_built, unsupported_problem or
// no_device.
std::optional<SweepRow> refused(const Case& test_case, const PlatformDescription& description, const std::string& arch);

// What was counted in one launch, into the columns of these names. Of a problem whose compulsory bytes fit into L2 what
// DRAM moves is left out, and counter_status says so: it would be what L2 chose to keep, not what the op does.
void take_counters(const std::map<std::string, double>& values, std::size_t l2_bytes, SweepRow& row);

// The least that a launch of it can take, in seconds, by measured ceilings. Throws std::out_of_range where one
// is missing.
double seconds_by_roof(const Case& test_case, const Ceilings& ceilings);

// The row, unsupported_problem, of a case that nobody named, naive or of a set of large problems, whose launch is
// predicted to take above a second, or above a tenth where it is neither ptx nor a baseline: by the roof, and by the
// share of it that its kind reaches.
std::optional<SweepRow> too_long(const Case& test_case, const Ceilings& ceilings,
                                 const PlatformDescription& description, const std::string& arch);

// What the kernel that stands for the launch takes.
void take_resources(const KernelResources& kernel, SweepRow& row);

// With a reason where it exceeds 100 %; `implausible` where its cold time is less than the device's measured rates of
// reads and of arithmetic allow, whatever the reason.
void place_under_roof(const Case& test_case, const Ceilings& ceilings, std::size_t cache_bytes, SweepRow& row);

double written_bytes(const Workload& workload, const AnyProblem& problem, DType dtype);  // the outputs', once

// What lets a row exceed 100 % of its roof.
std::string why_above_roof(const Cost& cost, double written_bytes, bool memory_bound, std::size_t cache_bytes);

// Empty where a cold launch can take this: 0.95 of what reading the compulsory bytes takes, or the FLOPs, whichever is
// longer.
std::string why_implausible(const Cost& cost, double written_bytes, double cold_us, const Ceiling& reads,
                            const Ceiling& compute);

}  // namespace noisefloor
