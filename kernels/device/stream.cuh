// Kernels that stream: every 16 bytes of the inputs are read once, worked on in registers, and written once. What an op
// adds is a Map, which is the kernel's argument:
//
//   static constexpr int kInputs;
//   std::uint32_t vectors;                                                 to work on, below 2^31
//   __device__ const void* at(int input, std::uint32_t vector) const;      the 16 bytes of an input
//   __device__ void apply(std::uint32_t vector, const uint4 (&bits)[kInputs]) const;    computes, and stores results
//
// and, where another number of loads does better than kStreamUnroll's: static constexpr int kUnroll.
//
// stream() runs it from global memory, kernels/device/bulk_pipeline.cuh through shared memory. Both wait for the launch
// ahead before they ask at() or apply() for anything.
#pragma once

#include <cstdint>

#include "kernels/core/device.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor {

// Loads and stores have no cache hint: ld.global.nc.L1::no_allocate and st.global.cs were slower on an H200, cold
// and in a chain (docs/experiments/elementwise).
inline constexpr int kStreamThreads = 256;
// Independent loads of a thread before it needs the first: 64 to 96 bytes.
template <class Map>
consteval int stream_unroll() {
  if constexpr (requires { Map::kUnroll; }) return Map::kUnroll;
  return Map::kInputs == 1 ? 4 : Map::kInputs < 4 ? 2 : 1;
}
template <class Map>
inline constexpr int kStreamUnroll = stream_unroll<Map>();

// 16-byte vectors of so many elements.
template <class T>
std::uint32_t vectors_of(std::int64_t elements) {
  return static_cast<std::uint32_t>(elements / kVectorLanes<T>);
}

// Asks for the inputs of a thread's vectors, every kStreamThreads-th from `first` on.
template <class Map, int kUnroll>
__device__ __forceinline__ void load_ahead(const Map& map, std::uint32_t first, uint4 (&bits)[kUnroll][Map::kInputs]) {
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t vector = first + u * kStreamThreads;
    if (vector >= map.vectors) break;
#pragma unroll
    for (int input = 0; input < Map::kInputs; ++input) bits[u][input] = load_16_bytes(map.at(input, vector));
  }
}

template <class Map>
__global__ void __launch_bounds__(kStreamThreads) stream_kernel(const __grid_constant__ Map map) {
  constexpr int kUnroll = kStreamUnroll<Map>;
  ptx::griddepcontrol_wait();
  const std::uint32_t first = blockIdx.x * (kStreamThreads * kUnroll) + threadIdx.x;
  uint4 bits[kUnroll][Map::kInputs];
  load_ahead(map, first, bits);
  ptx::griddepcontrol_launch_dependents();
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::uint32_t vector = first + u * kStreamThreads;
    if (vector >= map.vectors) break;
    map.apply(vector, bits[u]);
  }
}

template <class Map>
Status stream(const Map& map, const LaunchContext& context, const char* name) {
  constexpr std::uint32_t kBlock = kStreamThreads * kStreamUnroll<Map>;
  const LaunchShape shape{.grid = (map.vectors + kBlock - 1) / kBlock,
                          .block = kStreamThreads,
                          .programmatic = context.programmatic_launch};
  return launch_kernel(name, stream_kernel<Map>, shape, context.stream, map);
}

// at() of a map whose inputs are arrays of `vectors` vectors.
template <int kCount>
struct FlatInputs {
  static constexpr int kInputs = kCount;
  const void* inputs[kCount];
  std::uint32_t vectors;

  __device__ __forceinline__ const void* at(int input, std::uint32_t vector) const {
    return static_cast<const char*>(inputs[input]) + static_cast<std::int64_t>(vector) * 16;
  }
};

// What apply() needs for results of the inputs' type.
template <class T>
__device__ __forceinline__ void store_stream(void* base, std::uint32_t vector, const float (&out)[kVectorLanes<T>]) {
  store_vector<T>(static_cast<T*>(base) + static_cast<std::int64_t>(vector) * kVectorLanes<T>, out);
}

}  // namespace noisefloor
