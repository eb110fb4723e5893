#include <cuda_runtime.h>

#include <limits>
#include <stdexcept>
#include <string>

#include "bench/platform/clocks.h"

namespace noisefloor {
namespace {

// Cycles and nanoseconds of one spin; nanoseconds 0: not there yet.
struct Sample {
  long long cycles;
  unsigned long long nanoseconds;
};

__device__ __forceinline__ unsigned long long global_timer() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

// %globaltimer ticks coarsely (32 ns to 1 us), so both ends of the spin are put on a tick.
__global__ void clock_kernel(Sample* sample, unsigned long long spin_ns) {
  const unsigned long long before = global_timer();
  unsigned long long start = before;
  while (start == before) start = global_timer();
  const long long first = clock64();
  unsigned long long now = start;
  while (now - start < spin_ns) now = global_timer();
  const long long last = clock64();
  sample->cycles = last - first;
  sample->nanoseconds = now - start;
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("clock sampler: ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace

struct ClockSampler::State {
  Sample* samples = nullptr;  // pinned, written by the GPU
  int capacity = 0;
  int count = 0;
  unsigned long long spin_ns = 0;
};

ClockSampler::ClockSampler(int capacity, double spin_us) : state_(std::make_unique<State>()) {
  if (capacity < 1 || !(spin_us > 0)) throw std::runtime_error("clock sampler: capacity and spin must be above 0");
  state_->capacity = capacity;
  state_->spin_ns = static_cast<unsigned long long>(spin_us * 1000);
  check(cudaHostAlloc(&state_->samples, sizeof(Sample) * static_cast<std::size_t>(capacity), cudaHostAllocPortable),
        "cudaHostAlloc");
  clear();
  cudaFuncAttributes attributes;  // loads the kernel now, not between timed launches
  check(cudaFuncGetAttributes(&attributes, clock_kernel), "clock_kernel");
}

ClockSampler::~ClockSampler() {
  cudaFreeHost(state_->samples);
}

int ClockSampler::enqueue(Stream stream) {
  if (state_->count == state_->capacity)
    throw std::runtime_error("clock sampler: all " + std::to_string(state_->capacity) + " samples are taken");
  const int index = state_->count++;
  clock_kernel<<<1, 1, 0, stream>>>(state_->samples + index, state_->spin_ns);
  check(cudaGetLastError(), "clock_kernel");
  return index;
}

double ClockSampler::mhz(int index) const {
  if (index < 0 || index >= state_->count) throw std::runtime_error("clock sampler: there is no such sample");
  const volatile Sample& sample = state_->samples[index];
  if (sample.nanoseconds == 0) return std::numeric_limits<double>::quiet_NaN();
  return static_cast<double>(sample.cycles) / static_cast<double>(sample.nanoseconds) * 1e3;
}

int ClockSampler::count() const {
  return state_->count;
}

void ClockSampler::clear() {
  state_->count = 0;
  for (int i = 0; i < state_->capacity; ++i) state_->samples[i] = {0, 0};
}

}  // namespace noisefloor
