// What is known of a case behind its measuring, and what puts it there; also what went wrong, as its row says it.
#pragma once

#include <span>
#include <stdexcept>
#include <string>

#include "bench/measure/verify.h"
#include "reports/run/run_files.h"

namespace noisefloor {

struct KernelResources;
struct Timing;

struct CaseResult {
  SweepRow row;
  RowSamples samples{};
  bool device_lost = false;  // the process can launch nothing more
  std::string note{};        // for the log: a baseline's chosen algorithm
  Verdict verdict{};         // of the launch before the timed ones
};

// Other programs had the cores for too long.
class Throttled : public std::runtime_error {
 public:
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
// Of what a phase's launches left: whether it is right.
bool take_last_verdict(const char* phase, const Verdict& verdict, CaseResult& result);
void take_samples(const Timing& timing, CaseResult& result);
void clear_times(CaseResult& result);  // only `ok` rows carry times
void add_note(const std::string& note, CaseResult& result);

// The kernels of a launch into the fields of that name, in the order in which each is first launched.
void count_kernels(std::span<const KernelResources> kernels, RowSamples& samples);

}  // namespace noisefloor
