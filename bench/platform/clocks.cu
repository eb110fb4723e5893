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

// A moment on one SM. clock64 counts on between kernels.
struct Mark {
  long long cycles;
  unsigned long long nanoseconds;
  unsigned sm;
};

__device__ __forceinline__ Mark mark_on_tick() {
  Mark mark;
  const unsigned long long before = global_timer();
  do {
    mark.nanoseconds = global_timer();
  } while (mark.nanoseconds == before);
  mark.cycles = clock64();
  asm volatile("mov.u32 %0, %%smid;" : "=r"(mark.sm));
  return mark;
}

__global__ void begin_kernel(Mark* begin) {
  *begin = mark_on_tick();
}

__global__ void end_kernel(const Mark* begin, Sample* sample) {
  const Mark end = mark_on_tick();
  if (end.sm != begin->sm) return;
  sample->cycles = end.cycles - begin->cycles;
  sample->nanoseconds = end.nanoseconds - begin->nanoseconds;
}

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string("clock sampler: ") + what + ": " + cudaGetErrorString(error));
}

}  // namespace

struct ClockSampler::State {
  Sample* samples = nullptr;  // pinned, written by the GPU
  Mark* begins = nullptr;     // likewise, of samples that have a begin and an end
  int capacity = 0;
  int count = 0;
  unsigned long long spin_ns = 0;

  int take() {
    if (count == capacity)
      throw std::runtime_error("clock sampler: all " + std::to_string(capacity) + " samples are taken");
    return count++;
  }
};

ClockSampler::ClockSampler(int capacity, double spin_us) : state_(std::make_unique<State>()) {
  if (capacity < 1 || !(spin_us > 0)) throw std::runtime_error("clock sampler: capacity and spin must be above 0");
  state_->capacity = capacity;
  state_->spin_ns = static_cast<unsigned long long>(spin_us * 1000);
  check(cudaHostAlloc(&state_->samples, sizeof(Sample) * static_cast<std::size_t>(capacity), cudaHostAllocPortable),
        "cudaHostAlloc");
  if (const cudaError_t error =
          cudaHostAlloc(&state_->begins, sizeof(Mark) * static_cast<std::size_t>(capacity), cudaHostAllocPortable);
      error != cudaSuccess) {
    cudaFreeHost(state_->samples);
    check(error, "cudaHostAlloc");
  }
  clear();
  cudaFuncAttributes attributes;  // loads the kernels now, not between timed launches
  check(cudaFuncGetAttributes(&attributes, clock_kernel), "clock_kernel");
  check(cudaFuncGetAttributes(&attributes, begin_kernel), "begin_kernel");
  check(cudaFuncGetAttributes(&attributes, end_kernel), "end_kernel");
}

ClockSampler::~ClockSampler() {
  cudaFreeHost(state_->begins);
  cudaFreeHost(state_->samples);
}

int ClockSampler::enqueue(Stream stream) {
  const int index = state_->take();
  clock_kernel<<<1, 1, 0, stream>>>(state_->samples + index, state_->spin_ns);
  check(cudaGetLastError(), "clock_kernel");
  return index;
}

int ClockSampler::begin(Stream stream) {
  const int index = state_->take();
  begin_kernel<<<1, 1, 0, stream>>>(state_->begins + index);
  check(cudaGetLastError(), "begin_kernel");
  return index;
}

void ClockSampler::end(int index, Stream stream) {
  if (index < 0 || index >= state_->count) throw std::runtime_error("clock sampler: there is no such sample");
  end_kernel<<<1, 1, 0, stream>>>(state_->begins + index, state_->samples + index);
  check(cudaGetLastError(), "end_kernel");
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
