// What ptx_sm80_narrow does with a tile's sums. Device code only.
#pragma once

#include "kernels/convolution/epilogue.cuh"
#include "kernels/convolution/ptx_narrow_patch.cuh"
#include "kernels/product/mma_tile.cuh"

namespace noisefloor::convolution {

using product::kDrained;

// The sums of a tile through `slab` to y: a thread takes kDrained columns of every kRowsPerPass-th row. As
// product::drain_sums, but for what is loaded first: the rows' shifts too.
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
  const Epilogue<T>& epilogue = to.epilogue;
  if (to.column >= epilogue.cout) return;
  const bool more = epilogue.residual || epilogue.image_shift || epilogue.act != Activation::none;
  const int first = static_cast<int>(threadIdx.x) * kDrained / Tile::kBlockN, rows = static_cast<int>(c.phase_rows());
  const float* const line = slab + first * Tile::kSlabStride + product::drain_column(Tile::kBlockN);
  const auto pixel = [&](int row) {
    if (c.phases() == 1) return row;
    const int image = row / grid.pixels, at = row % grid.pixels, y = at / grid.width;
    return (image * c.y.out_extent() + y * c.y.phases + c.phase_y(phase)) * c.x.out_extent() +
           (at - y * grid.width) * c.x.phases + c.phase_x(phase);
  };
#pragma unroll 1
  for (int done = 0; done < kPasses; done += kBatch) {
    Run<T, kDrained> residual[kBatch]{}, shift[kBatch]{};
    int at[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int row = row0 + first + (done + b) * kRowsPerPass;
      at[b] = row < rows ? pixel(row) : -1;
      if (!more || at[b] < 0) continue;
      residual[b] = to.residual(at[b]);
      if (epilogue.image_shift)
        shift[b] = to.load(epilogue.image_shift + std::int64_t{row / grid.pixels} * epilogue.cout);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (at[b] < 0) continue;
      const auto sum = *reinterpret_cast<const float4*>(line + (done + b) * kRowsPerPass * Tile::kSlabStride);
      to.finish({sum.x, sum.y, sum.z, sum.w}, at[b], residual[b], shift[b], more);
    }
  }
}

}  // namespace noisefloor::convolution
