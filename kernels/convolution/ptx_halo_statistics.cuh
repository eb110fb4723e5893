// The statistics of a patch of 8 x 8 pixels, per channel, from a piece of the output in shared memory, as it is stored:
// mean and sum of squared deviations, in two passes of each thread over its rows, then merged between lanes in a fixed
// order (Chan, Golub and LeVeque 1979). Needs whole patches. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/ptx_sm90a_epilogue.cuh"

namespace noisefloor::convolution {

// `piece`: [64 pixels][kColumns] of T as TMA swizzles it, channels [column, column + columns) of the output. A thread
// has two channels and one of kGroups shares of the rows, such that a warp's words lie in different banks.
template <int kColumns, class T, class Place>
__device__ __forceinline__ void patch_statistics(const EpilogueStore<T, Place>& from, const std::uint8_t* piece,
                                                 int column, int columns) {
  static_assert(kColumns == 32 || kColumns == 64, "a row of 64 or 128 bytes");
  constexpr int kPairs = kColumns / 8;  // of channels, of a warp
  constexpr int kGroups = 32 / kPairs;
  constexpr int kRows = kPatch * kPatch / kGroups;  // of a thread
  const Patch& patch = from.place;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int lane = thread % 32, group = lane / kPairs;
  const int pair = thread / 32 * kPairs + lane % kPairs;
  float low[kRows], high[kRows];
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int row = kColumns == 64 ? i / 2 * 8 + group * 2 + i % 2 : i * 8 + group;
    const int swizzle = kColumns == 64 ? row % 8 : row / 2 % 4;
    const auto* word = piece + row * kColumns * 2 + ((pair / 4) ^ swizzle) * 16 + pair % 4 * 4;
    unpack_pair<T>(*reinterpret_cast<const std::uint32_t*>(word), low[i], high[i]);
  }
  float mean[2] = {}, m2[2] = {};
#pragma unroll
  for (int i = 0; i < kRows; ++i) mean[0] += low[i], mean[1] += high[i];
  mean[0] *= 1.0f / kRows, mean[1] *= 1.0f / kRows;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    m2[0] = fmaf(low[i] - mean[0], low[i] - mean[0], m2[0]);
    m2[1] = fmaf(high[i] - mean[1], high[i] - mean[1], m2[1]);
  }
  float rows = kRows;  // behind both sides of a merge
#pragma unroll
  for (int distance = kPairs; distance < 32; distance *= 2, rows *= 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float delta = __shfl_xor_sync(0xffffffffu, mean[i], distance) - mean[i];
      m2[i] += __shfl_xor_sync(0xffffffffu, m2[i], distance);
      m2[i] = fmaf(delta * delta, 0.5f * rows, m2[i]);
      mean[i] = fmaf(delta, 0.5f, mean[i]);
    }
  }
  const Convolution& c = from.args.c;
  if (group != 0 || 2 * pair >= columns || column + 2 * pair >= c.cout || patch.tall == 0) return;
  const int slab = patch.y0 / kPatch * (c.x.out / kPatch) + patch.x0 / kPatch;
  const std::int64_t at = (std::int64_t{patch.at_image} * c.slabs() + slab) * c.cout + column + 2 * pair;
  *reinterpret_cast<float2*>(from.args.mean + at) = make_float2(mean[0], mean[1]);
  *reinterpret_cast<float2*>(from.args.m2 + at) = make_float2(m2[0], m2[1]);
}

}  // namespace noisefloor::convolution
