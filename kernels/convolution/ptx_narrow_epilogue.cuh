// What ptx_sm80_narrow does with a tile's sums. Device code only.
#pragma once

#include "kernels/convolution/epilogue.cuh"
#include "kernels/convolution/ptx_narrow_patch.cuh"
#include "kernels/product/mma_tile.cuh"

namespace noisefloor::convolution {

using product::kDrained;

// The sums of a tile through `slab` to y: a thread takes kDrained columns of every kRowsPerPass-th row. As
// product::drain_sums, whose loop unrolled would be half as long again.
template <class T, class Tile>
__device__ __forceinline__ void store_narrow_tile(const product::Sums<Tile>& sums, float* slab,
                                                  const Columns<T, kDrained>& to, const Convolution& c,
                                                  const NarrowGrid& grid, int phase, int row0) {
  constexpr int kRowsPerPass = kNarrowThreads * kDrained / Tile::kBlockN, kPasses = kNarrowRows / kRowsPerPass;
  constexpr int kBatch = kPasses < 4 ? kPasses : 4;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* const corner = slab + (warp * 16 + lane / 4) * Tile::kSlabStride + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < Tile::kFragmentsN; ++j) {
    const float(&sum)[4] = sums[0][j];
    *reinterpret_cast<float2*>(corner + j * 8) = make_float2(sum[0], sum[1]);
    *reinterpret_cast<float2*>(corner + j * 8 + 8 * Tile::kSlabStride) = make_float2(sum[2], sum[3]);
  }
  __syncthreads();
  if (to.column >= to.epilogue.columns) return;
  const int first = static_cast<int>(threadIdx.x) * kDrained / Tile::kBlockN;
  const ToOutput<T, kDrained> out{to, c, grid.pixels, phase, row0 + first, static_cast<int>(c.phase_rows())};
  const float* const line = slab + first * Tile::kSlabStride + product::drain_column(Tile::kBlockN);
#pragma unroll 1
  for (int done = 0; done < kPasses; done += kBatch) {
    typename ToOutput<T, kDrained>::Ahead ahead[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) ahead[b] = out.prefetch((done + b) * kRowsPerPass);
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const auto sum = *reinterpret_cast<const float4*>(line + (done + b) * kRowsPerPass * Tile::kSlabStride);
      const float sums[kDrained] = {sum.x, sum.y, sum.z, sum.w};
      out.take(0, sums, sums, ahead[b]);
    }
  }
}

}  // namespace noisefloor::convolution
