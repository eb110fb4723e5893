// The SM clock as the GPU itself sees it: cycles (clock64) over nanoseconds (%globaltimer), by a one-thread kernel that
// spins for some tens of microseconds. Unlike NVML's reading it can be put right before and after the launches it is
// about.
#pragma once

#include <memory>

#include "kernels/core/device.h"

namespace noisefloor {

class ClockSampler {
 public:
  // Room for `capacity` samples; each spins for about `spin_us`. Throws std::runtime_error when memory cannot be had,
  // or where this build has no CUDA.
  explicit ClockSampler(int capacity = 256, double spin_us = 64);
  ~ClockSampler();
  ClockSampler(const ClockSampler&) = delete;
  ClockSampler& operator=(const ClockSampler&) = delete;

  // Enqueues a sample and returns its index. Does not synchronise; throws std::runtime_error when there is no room left
  // (`clear` makes some) or the launch fails.
  int enqueue(Stream stream);
  // The clock in MHz, once the stream is synchronised; NaN before.
  double mhz(int index) const;
  int count() const;
  // Forgets all samples; none may be in flight.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace noisefloor
