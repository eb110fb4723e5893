// What ptx_sm80_narrow does with a tile's sums. Device code only.
#pragma once

#include "kernels/convolution/epilogue.cuh"
#include "kernels/convolution/ptx_narrow_patch.cuh"
#include "kernels/product/mma_tile.cuh"

namespace noisefloor::convolution {

using product::kDrained;

// How a block's threads take the rows of a finished tile: each kDrained columns of every kRowsPerPass-th row, kBatch
// rows at a time.
template <class Tile>
struct NarrowPasses {
  static constexpr int kRowsPerPass = kNarrowThreads * kDrained / Tile::kBlockN, kPasses = kNarrowRows / kRowsPerPass;
  static constexpr int kBatch = kPasses < 4 ? kPasses : 4;
  // One batch is all: registers leave room for what is added to it while its products are made.
  static constexpr bool kEarly = kPasses == 2;
};

// What is added to a batch of rows. The pixel of a row past the last is -1.
template <class T, class Tile>
struct NarrowAhead {
  static constexpr int kBatch = NarrowPasses<Tile>::kBatch;
  int pixel[kBatch];
  Run<T, kDrained> residual[kBatch], shift[kBatch];

  NarrowAhead() = default;
  __device__ __forceinline__ NarrowAhead(const Columns<T, kDrained>& columns, const Convolution& c,
                                         const NarrowGrid& grid, int phase, int row0) {
    const int first = row0 + static_cast<int>(threadIdx.x) * kDrained / Tile::kBlockN;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int row = first + b * NarrowPasses<Tile>::kRowsPerPass;
      residual[b] = shift[b] = {};
      pixel[b] = row < c.phase_rows() ? row : -1;
      if (pixel[b] < 0) continue;
      if (c.phases() > 1) {
        const int image = row / grid.pixels, at = row - image * grid.pixels, y = at / grid.width;
        pixel[b] = (image * c.y.out_extent() + y * c.y.phases + c.phase_y(phase)) * c.x.out_extent() +
                   (at - y * grid.width) * c.x.phases + c.phase_x(phase);
      }
      const Epilogue<T>& epilogue = columns.epilogue;
      residual[b] = columns.residual(pixel[b]);
      if (epilogue.image_shift)
        shift[b] = columns.load(epilogue.image_shift + std::int64_t{row / grid.pixels} * epilogue.cout);
    }
  }
};

// The sums of a tile through `slab` to y. `ahead` is read if kEarly.
template <class T, class Tile>
__device__ __forceinline__ void store_narrow_tile(const product::Sums<Tile>& sums, float* slab,
                                                  const Columns<T, kDrained>& columns,
                                                  const NarrowAhead<T, Tile>& ahead, const Convolution& c,
                                                  const NarrowGrid& grid, int phase, int row0) {
  using P = NarrowPasses<Tile>;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  float* const corner = slab + (warp * 16 + lane / 4) * Tile::kSlabStride + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < Tile::kFragmentsN; ++j) {
    const float(&sum)[4] = sums[0][j];
    *reinterpret_cast<float2*>(corner + j * 8) = make_float2(sum[0], sum[1]);
    *reinterpret_cast<float2*>(corner + j * 8 + 8 * Tile::kSlabStride) = make_float2(sum[2], sum[3]);
  }
  __syncthreads();
  const Epilogue<T>& epilogue = columns.epilogue;
  if (columns.column >= epilogue.cout) return;
  const bool more = epilogue.residual || epilogue.image_shift || epilogue.act != Activation::none;
  const int first = static_cast<int>(threadIdx.x) * kDrained / Tile::kBlockN;
  const float* const line = slab + first * Tile::kSlabStride + product::drain_column(Tile::kBlockN);
  const auto finish = [&](const NarrowAhead<T, Tile>& batch, int done) {
#pragma unroll
    for (int b = 0; b < P::kBatch; ++b) {
      if (batch.pixel[b] < 0) continue;
      const auto sum = *reinterpret_cast<const float4*>(line + (done + b) * P::kRowsPerPass * Tile::kSlabStride);
      columns.finish({sum.x, sum.y, sum.z, sum.w}, batch.pixel[b], batch.residual[b], batch.shift[b], more);
    }
  };
  if constexpr (P::kEarly) {
    finish(ahead, 0);
  } else {
#pragma unroll 1
    for (int done = 0; done < P::kPasses; done += P::kBatch)
      finish({columns, c, grid, phase, row0 + done * P::kRowsPerPass}, done);
  }
}

}  // namespace noisefloor::convolution
