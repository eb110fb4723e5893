// The machine's processors, as a run finds them, and threads that are bound to them.
#pragma once

#include <sched.h>

#include <optional>
#include <string>

namespace noisefloor {

std::string cpu_name();  // "AMD EPYC 9654 96-Core Processor"

struct Processors {
  std::string model;
  int cores = 0;                       // that this process may use
  std::string governor;                // "performance"; empty where the system does not say, as in most containers
  std::optional<double> load_average;  // runnable threads of the machine, the mean of the last minute
};
Processors describe_processors();

// Each thread of OpenMP on a core of its own, for as long as something is timed.
//
// Beside other programs the scheduler puts a thread that is woken onto its waker's core, and both then share that one:
// launches take twice as long, or longer. Where there are as many threads as cores that this process may use, each is
// bound to one of them until the end of this object's life. Otherwise, and where the user binds them (OMP_PROC_BIND),
// nothing is done.
class PinnedThreads {
 public:
  PinnedThreads();
  ~PinnedThreads();
  PinnedThreads(const PinnedThreads&) = delete;

 private:
  std::optional<cpu_set_t> before_;
};

}  // namespace noisefloor
