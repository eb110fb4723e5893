// How edge_levels.cu measures an edge: chains of 64 empty kernels in a CUDA graph, replayed between events behind a
// gate.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "edge_levels_suspects.cuh"

namespace edge_levels {

inline void check(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

inline void wait(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

__device__ inline unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void gate(const volatile int* open) {
  constexpr unsigned long long kMost = 5'000'000'000;
  const unsigned long long start = nanoseconds();
  while (*open == 0 && nanoseconds() - start < kMost) {
  }
}

__global__ void read_clock(double* mhz) {
  constexpr unsigned long long kSpin = 200'000;
  const unsigned long long start = nanoseconds();
  const long long first = clock64();
  unsigned long long now = start;
  while (now - start < kSpin) now = nanoseconds();
  *mhz = static_cast<double>(clock64() - first) / static_cast<double>(now - start) * 1e3;
}

inline double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Level {
  double fresh = 0, kept = 0, mhz = 0;  // microseconds an edge
};

inline bool above(const Level& a, const Level& b) {
  constexpr double kStep = 0.08;  // under half of what lay between the levels seen, well over the noise
  return a.fresh - b.fresh > kStep || a.kept - b.kept > kStep;
}

class Edges {
 public:
  Edges() {
    check(cudaStreamCreate(&stream));
    check(cudaMallocHost(&open_, sizeof(int)));
    check(cudaMallocHost(&mhz_, sizeof(double)));
    for (cudaEvent_t& event : events_) check(cudaEventCreate(&event));
    check(capture(&kept_, nothing<0>, kLength, false));
  }

  // Medians of five, behind 20 ms that wake the GPU.
  Level measure() {
    using Clock = std::chrono::steady_clock;
    for (const auto start = Clock::now(); Clock::now() - start < std::chrono::milliseconds(20);) time(kept_);
    std::vector<double> fresh, kept;
    for (int i = 0; i < 5; ++i) {
      cudaGraphExec_t graph = nullptr;
      check(capture(&graph, nothing<0>, kLength, false));
      fresh.push_back(time(graph));
      kept.push_back(time(kept_));
      check(cudaGraphExecDestroy(graph));
    }
    read_clock<<<1, 1, 0, stream>>>(mhz_);
    check(cudaGetLastError());
    check(cudaStreamSynchronize(stream));
    return {median(fresh), median(kept), *mhz_};
  }

 private:
  static constexpr int kLength = 64;

  // The median of nine replays, three at a time behind a gate, so that all are queued first.
  double time(cudaGraphExec_t graph) {
    check(cudaGraphLaunch(graph, stream));
    std::vector<double> times;
    for (int group = 0; group < 3; ++group) {
      *static_cast<volatile int*>(open_) = 0;
      gate<<<1, 1, 0, stream>>>(open_);
      check(cudaGetLastError());
      for (std::size_t i = 0; i < events_.size(); i += 2) {
        check(cudaEventRecord(events_[i], stream));
        check(cudaGraphLaunch(graph, stream));
        check(cudaEventRecord(events_[i + 1], stream));
      }
      *static_cast<volatile int*>(open_) = 1;
      check(cudaStreamSynchronize(stream));
      for (std::size_t i = 0; i < events_.size(); i += 2) {
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]));
        times.push_back(1e3 * milliseconds / kLength);
      }
    }
    return median(times);
  }

  int* open_ = nullptr;
  double* mhz_ = nullptr;
  cudaGraphExec_t kept_ = nullptr;
  std::array<cudaEvent_t, 6> events_{};
};

}  // namespace edge_levels
