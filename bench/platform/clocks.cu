#include <cuda_runtime.h>

#include <limits>

#include "bench/platform/clocks.h"
#include "bench/platform/cuda_timing.h"

namespace noisefloor {

// Cycles and nanoseconds of one spin; nanoseconds 0: not there yet.
struct ClockSampler::Sample {
  long long cycles;
  unsigned long long nanoseconds;
};

namespace {

__device__ __forceinline__ unsigned long long global_timer() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

// %globaltimer ticks coarsely (32 ns to 1 us), so both ends of the spin are put on a tick.
__global__ void clock_kernel(long long* cycles, unsigned long long* nanoseconds, unsigned long long spin_ns) {
  const unsigned long long before = global_timer();
  unsigned long long start = before;
  while (start == before) start = global_timer();
  const long long first = clock64();
  unsigned long long now = start;
  while (now - start < spin_ns) now = global_timer();
  const long long last = clock64();
  *cycles = last - first;
  *nanoseconds = now - start;
}

}  // namespace

ClockSampler::ClockSampler(double spin_us) : spin_ns_(static_cast<unsigned long long>(spin_us * 1000)) {
  cudaFuncAttributes attributes;  // loads the kernel now, not between timed launches
  CUDA_CHECK(cudaFuncGetAttributes(&attributes, clock_kernel));
  CUDA_CHECK(cudaHostAlloc(&sample_, sizeof(Sample), cudaHostAllocPortable));
  *sample_ = {0, 0};
}

ClockSampler::~ClockSampler() {
  cudaFreeHost(sample_);
}

void ClockSampler::enqueue(Stream stream) {
  *sample_ = {0, 0};
  clock_kernel<<<1, 1, 0, stream>>>(&sample_->cycles, &sample_->nanoseconds, spin_ns_);
  CUDA_CHECK(cudaGetLastError());
}

double ClockSampler::mhz() const {
  const volatile Sample& sample = *sample_;
  if (sample.nanoseconds == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(sample.cycles) / static_cast<double>(sample.nanoseconds) * 1e3;
}

}  // namespace noisefloor
