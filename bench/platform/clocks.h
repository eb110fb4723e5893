// The SM clock as the GPU itself sees it: cycles (clock64) over nanoseconds (%globaltimer), by a one-thread kernel that
// spins for some tens of microseconds. Unlike NVML's reading it can be put right before and after the launches it is
// about.
#pragma once

#include "kernels/core/device.h"

namespace noisefloor {

class ClockSampler {
 public:
  // A sample spins for about `spin_us`. Throws std::runtime_error when memory cannot be had. Builds with CUDA only.
  explicit ClockSampler(double spin_us = 64);
  ~ClockSampler();
  ClockSampler(const ClockSampler&) = delete;
  ClockSampler& operator=(const ClockSampler&) = delete;

  // Enqueues a sample, in place of the one before. Does not synchronise; throws std::runtime_error when the launch
  // fails.
  void enqueue(Stream stream);
  // The clock in MHz, once the stream is synchronised; NaN before.
  double mhz() const;

 private:
  struct Sample;
  Sample* sample_ = nullptr;  // pinned, written by the GPU
  unsigned long long spin_ns_ = 0;
};

}  // namespace noisefloor
