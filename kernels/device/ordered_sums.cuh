// Sums over streams in a fixed order: each thread adds what its vectors leave, each block its threads', and a second
// launch the blocks'. How many blocks there are is the problem's and not the device's, so that a sum has the same bits
// on every device. What an op adds is a Map as stream.cuh's, whose apply() leaves numbers to be added:
//
//   static constexpr int kTerms;
//   __device__ void apply(std::uint32_t vector, const uint4 (&bits)[kInputs], float (&terms)[kTerms]) const;
//
// and a Finish, which one thread calls with the sum: __device__ void operator()(float sum) const.
#pragma once

#include "kernels/core/variant.h"
#include "kernels/device/block_sum.cuh"
#include "kernels/device/stream.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor {

// How a thread adds terms: by themselves, in kTerms chains.
template <int kTerms>
struct LaneSums {
  float sums[kTerms] = {};

  __device__ __forceinline__ void add(const float (&terms)[kTerms]) {
#pragma unroll
    for (int i = 0; i < kTerms; ++i) sums[i] += terms[i];
  }
  __device__ __forceinline__ void end_round() {}
  __device__ __forceinline__ float total() const {
    float total = sums[0];
#pragma unroll
    for (int i = 1; i < kTerms; ++i) total += sums[i];
    return total;
  }
};

// Or a warp's together, as a product with ones (sm_80): each term as three of bf16, which hold its 24 bits. Tensor
// cores cut sums off where fp32 rounds them, so a round's sums are added to the others outside.
template <int kTerms>
struct OnesProduct {
  float product[4] = {}, sum = 0;

  __device__ __forceinline__ void add(const float (&terms)[kTerms]) {
    constexpr int kParts = 3, kWords = (kParts * kTerms / 2 + 3) / 4 * 4;
    std::uint32_t words[kWords] = {};
#pragma unroll
    for (int i = 0; i < kTerms; i += 2) {
      float low = terms[i], high = terms[i + 1];
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const std::uint32_t pair = pack_pair<__nv_bfloat16>(low, high);
        float of_low, of_high;
        unpack_pair<__nv_bfloat16>(pair, of_low, of_high);
        low -= of_low;
        high -= of_high;
        words[part * kTerms / 2 + i / 2] = pair;
      }
    }
    const std::uint32_t ones = 0x3f803f80;
#pragma unroll
    for (int word = 0; word < kWords; word += 4)
      ptx::mma_m16n8k16<__nv_bfloat16>(product, {words[word], words[word + 1], words[word + 2], words[word + 3]}, ones,
                                       ones);
  }
  // Every column of the product holds the sums of rows: lane 4 g those of rows g and g + 8.
  __device__ __forceinline__ void end_round() {
    if (threadIdx.x % 4 == 0) sum += product[0] + product[2];
#pragma unroll
    for (float& value : product) value = 0;
  }
  __device__ __forceinline__ float total() const {
    return sum;
  }
};

namespace {  // each file that includes this is compiled for architectures of its own

template <class Map, template <int> class Sums>
__global__ void __launch_bounds__(kStreamThreads) sums_kernel(const __grid_constant__ Map map, float* block_sums) {
  constexpr int kUnroll = kStreamUnroll<Map>;
  __shared__ float shared[kStreamThreads];
  ptx::griddepcontrol_wait();
  Sums<Map::kTerms> sums;
  const std::uint32_t stride = gridDim.x * kStreamThreads * kUnroll;
  for (std::uint32_t base = blockIdx.x * kStreamThreads * kUnroll; base < map.vectors; base += stride) {
    uint4 bits[kUnroll][Map::kInputs];
    load_ahead(map, base + threadIdx.x, bits);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::uint32_t vector = base + u * kStreamThreads + threadIdx.x;
      float terms[Map::kTerms] = {};
      if (vector < map.vectors) map.apply(vector, bits[u], terms);
      sums.add(terms);
    }
    sums.end_round();
  }
  ptx::griddepcontrol_launch_dependents();
  const float sum = block_sum<kStreamThreads>(sums.total(), shared);
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sum;
}

template <class Finish>
__global__ void __launch_bounds__(kStreamThreads)
    finish_kernel(const float* block_sums, int count, const __grid_constant__ Finish finish) {
  __shared__ float shared[kStreamThreads];
  ptx::griddepcontrol_wait();
  float sum = 0;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kStreamThreads) sum += block_sums[i];
  sum = block_sum<kStreamThreads>(sum, shared);
  if (threadIdx.x == 0) finish(sum);
}

// The second launch.
template <class Finish>
Status launch_finish(const char* name, const Scratch& scratch, std::int64_t count, const Finish& finish,
                     const LaunchContext& context) {
  return launch_kernel(name, finish_kernel<Finish>,
                       {.block = kStreamThreads, .programmatic = context.programmatic_launch}, context.stream,
                       static_cast<const float*>(scratch.workspace), static_cast<int>(count), finish);
}

// Both, with `blocks` sums in the workspace.
template <template <int> class Sums, class Map, class Finish>
Status launch_sums(const char* name, const Map& map, std::int64_t blocks, const Finish& finish, const Scratch& scratch,
                   const LaunchContext& context) {
  const LaunchShape shape{
      .grid = static_cast<unsigned>(blocks), .block = kStreamThreads, .programmatic = context.programmatic_launch};
  const Status status =
      launch_kernel(name, sums_kernel<Map, Sums>, shape, context.stream, map, static_cast<float*>(scratch.workspace));
  return status.ok() ? launch_finish(name, scratch, blocks, finish, context) : status;
}

}  // namespace
}  // namespace noisefloor
