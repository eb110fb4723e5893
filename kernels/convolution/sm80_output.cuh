// Where the sums of the mma.sync rungs go. Device code only.
#pragma once

#include <cstdint>

#include "kernels/convolution/epilogue.cuh"
#include "kernels/product/mma_tile.cuh"

namespace noisefloor::convolution {

using product::kDrained;

// For drain_sums: the epilogue, from row `row0` of the phase on.
template <class T>
struct ToOutput {
  const Columns<T, kDrained>& columns;
  const Convolution& c;
  int phase, row0, rows;

  __device__ __forceinline__ int pixel(int row) const {
    if (c.phases() == 1) return row;
    const auto pixels = static_cast<int>(c.phase_pixels());
    const int y = row % pixels / c.x.out * 2 + phase / 2, x = row % pixels % c.x.out * 2 + phase % 2;
    return (row / pixels * c.y.out_extent() + y) * c.x.out_extent() + x;
  }
  __device__ __forceinline__ Run<T, kDrained> prefetch(int row) const {
    return columns.epilogue.residual && row0 + row < rows ? columns.residual(pixel(row0 + row)) : Run<T, kDrained>{};
  }
  __device__ __forceinline__ void take(int row, const float (&sums)[kDrained], const float (&)[kDrained],
                                       const Run<T, kDrained>& residual) const {
    if (row0 + row >= rows) return;
    const int image = columns.epilogue.image_shift ? (row0 + row) / static_cast<int>(c.phase_pixels()) : 0;
    columns.store(sums, image, pixel(row0 + row), residual);
  }
};

}  // namespace noisefloor::convolution
