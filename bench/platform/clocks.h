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
  // Enqueues the begin and the end of a sample that spans what is enqueued between them: their mean clock. The first
  // returns its index. Nothing else may run beside them.
  int begin(Stream stream);
  void end(int index, Stream stream);
  // The clock in MHz, once the stream is synchronised; NaN before, and where begin and end did
  // not run on the same SM, whose counters need not agree.
  double mhz(int index) const;
  int count() const;
  // Forgets all samples; none may be in flight.
  void clear();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace noisefloor
