// CUPTI has one range profiler and one set of activity callbacks a process, and answers a second user with "invalid
// parameter".
#pragma once

#include <atomic>
#include <string>

#include "bench/counters/counter_status.h"

namespace noisefloor {

// The one `Owner` of this process that is alive; another one throws CountersUnavailable (busy) in `message`.
template <class Owner>
class OnlyOne {
 public:
  explicit OnlyOne(const char* message) {
    if (taken_.exchange(true)) throw CountersUnavailable(CounterStatus::busy, message);
  }
  ~OnlyOne() { taken_ = false; }
  OnlyOne(const OnlyOne&) = delete;
  OnlyOne& operator=(const OnlyOne&) = delete;

 private:
  static inline std::atomic<bool> taken_ = false;
};

}  // namespace noisefloor
