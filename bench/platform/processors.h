// The host's processors: what they are, threads that are bound to them, and who else wants them: how long threads of
// this process waited for one, and how many others could run.
#pragma once

#include <sched.h>

#include <map>
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

// The time that this process' threads were ready and had no core, by the kernel's account of each thread (second field
// of /proc/self/task/*/schedstat). A thread that was taken off its core in the middle of a launch shows here, and
// nowhere else: the launch itself is only slow.
class RunQueueWatch {
 public:
  RunQueueWatch() = default;
  ~RunQueueWatch();
  RunQueueWatch(const RunQueueWatch&) = delete;

  // Finds the threads that are there now.
  void list_threads();
  // Microseconds that they waited since each began, summed. A kernel that keeps no account (CONFIG_SCHED_INFO) counts
  // the switches that were forced on the process: each stands for a millisecond, which is about what one costs.
  double waited_us() const;

 private:
  void forget(std::map<long, int>::iterator thread);
  std::map<long, int> files_;  // by thread
};

// Microseconds that a hypervisor gave the machine's cores to others, since it started; in steps of a clock tick.
double stolen_us();

// Threads of this process that run or could run right now, the caller among them.
int own_runnable_threads();
// Whether a wait for `others` that are ready goes on after so many seconds, in which they computed so many of the
// process' own: a pool that spins for its next work is ready for ever, and a core may be slow to come by.
bool may_still_work(int others, double waited, double computed);
// Threads of others that run or could run right now; nothing where /proc does not say.
std::optional<double> other_runnable_threads();
// The mean of that over a tenth of a second.
std::optional<double> load_of_others();

}  // namespace noisefloor
