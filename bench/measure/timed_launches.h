// The launches of a bound case that are timed.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "bench/measure/bound_case.h"
#include "bench/measure/platform_timing.h"

namespace noisefloor {

class TimedLaunches {
 public:
  // Both must outlive this.
  TimedLaunches(Platform& platform, BoundCase& bound);

  std::vector<std::pair<void*, std::size_t>> resident;  // what a launch may touch
  PlatformTiming::Launches launches;
  // That its tensors can be moved to: one where its launches were recorded, and of a plugin, which may keep what it
  // made of its pointers.
  std::size_t places;

  void move_to(std::size_t place);

 private:
  BoundCase* bound_;
  std::unique_ptr<Recording> recording_;  // of many kernels
};

}  // namespace noisefloor
