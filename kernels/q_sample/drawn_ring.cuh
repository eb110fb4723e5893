// q_sample with drawn noise in 16 bits for sm_90a: drawn.cuh's arithmetic, fed through four slots of 16 bytes a thread
// in shared memory. A thread copies what only it will read, four vectors ahead, so that loads are in flight while it
// draws, hold no registers, and need no barrier; and a block lives for up to 16 vectors a thread.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/q_sample/drawn.cuh"

namespace noisefloor::q_sample {

inline constexpr int kRingSlots = 4;
static_assert(kDrawnThreads == kRingThreads);

// Vectors `vector` to `end` of an image, kDrawnThreads apart. kWhole: `steps` of them, a multiple of kRingSlots.
template <class T, bool kKeep, bool kWhole>
__device__ __forceinline__ void draw_ring(const DrawnArguments& a, std::uint32_t image, std::uint32_t vector,
                                          std::uint32_t end, std::uint32_t steps, std::uint32_t slots) {
  constexpr int kStride = kDrawnThreads * 16;
  const std::int64_t base = (static_cast<std::int64_t>(image) * a.vectors + vector) * 16;
  const char* from = a.x0 + base;
  char* to = a.x_t + base;
  [[maybe_unused]] char* noise_to = kKeep ? a.noise_out + base : nullptr;
#pragma unroll
  for (int u = 0; u < kRingSlots; ++u) {
    if (kWhole || vector + u * kDrawnThreads < end) ptx::cp_async_16_alone(slots + u * kStride, from + u * kStride);
    ptx::cp_async_commit();
  }
  const float2 level = a.levels[image];  // not by the read-only path: the grid before this one may have written it
  const ImageNoise noise(a.noise, image);
  const float scale = kKeep ? kRootTwoLn2 : level.y * kRootTwoLn2;
#pragma unroll 1
  for (std::uint32_t step = 0; step < steps; step += kRingSlots) {
#pragma unroll
    for (int u = 0; u < kRingSlots; ++u) {
      if (!kWhole && vector + u * kDrawnThreads >= end) return;  // nothing of this thread's is in flight then
      const NormalPairs normals = short_normals(eight_words(a.noise, noise, vector + u * kDrawnThreads), scale);
      ptx::cp_async_wait<kRingSlots - 1>();
      float x[8];
      unpack_vector<T>(ptx::load_shared_16(slots + u * kStride), x);
      finish_drawn<T, kKeep>(normals, level, x, to + u * kStride, noise_to + (kKeep ? u * kStride : 0));
      // The slot has been read: what was stored depends on it, and a thread's accesses of shared memory are carried out
      // in the order of issue.
      if (kWhole ? step + kRingSlots < steps : vector + (u + kRingSlots) * kDrawnThreads < end)
        ptx::cp_async_16_alone(slots + u * kStride, from + (u + kRingSlots) * kStride);
      ptx::cp_async_commit();
    }
    vector += kRingSlots * kDrawnThreads;
    from += kRingSlots * kStride;
    to += kRingSlots * kStride;
    if constexpr (kKeep) noise_to += kRingSlots * kStride;
  }
}

// A block takes `steps` times kDrawnThreads vectors of an image, or what is left of it.
template <class T, bool kKeep>
__global__ void __launch_bounds__(kDrawnThreads, kRingBlocksPerSm)
    ring_kernel(const __grid_constant__ DrawnArguments a, std::uint32_t steps) {
  __shared__ uint4 slots[kRingSlots * kDrawnThreads];
  const std::uint32_t mine = ptx::shared_address(slots + threadIdx.x);
  const std::uint32_t image = blockIdx.x / a.tiles, tile = blockIdx.x - image * a.tiles;
  const std::uint32_t first = tile * steps * kDrawnThreads, end = first + steps * kDrawnThreads;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();  // what the kernel before this one wrote
  if (end <= a.vectors && steps % kRingSlots == 0)
    draw_ring<T, kKeep, true>(a, image, first + threadIdx.x, end, steps, mine);
  else
    draw_ring<T, kKeep, false>(a, image, first + threadIdx.x, min(end, a.vectors), steps, mine);
}

}  // namespace noisefloor::q_sample
