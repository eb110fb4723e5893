// Each thread of OpenMP on a core of its own, for as long as something is timed.
#pragma once

#include <sched.h>

#include <optional>

namespace noisefloor {

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
