// Who else wants the host's cores: how long threads of this process waited for one, and how many others could run.
#pragma once

#include <map>
#include <optional>

namespace noisefloor {

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
// Threads of others that run or could run right now; nothing where /proc does not say.
std::optional<double> other_runnable_threads();
// The mean of that over a tenth of a second.
std::optional<double> load_of_others();

}  // namespace noisefloor
