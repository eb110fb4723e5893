// dgrad, tiled: the convolution of dy that gradient.h describes, as a matrix product in shared-memory tiles with fp32
// FMAs (kernels/product/quadrants.cuh). Rows are pixels of dx, columns input channels; k runs over taps, then output
// channels. Half of the threads gather a pixel of dy each and transpose it; the other half read weights, whose input
// channels lie side by side as the tile wants them: no flipped or transposed copy. Behind an upsample they sum the taps
// that meet. A launch per phase.
//
// Better than naive: an element that a block gathers is used for 128 pixels or channels, and of a stride of 2 no thread
// asks taps that miss.
//
// Requires: grid limits; loads are 16 bytes wide where channels are multiples of 8, else one element each.
// Bound: FP32 FMA. Numerics: one fp32 FMA chain; sums of weights in fp32. Source: original.
#include "kernels/convolution/gradient.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/product/quadrants.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kTile = kTiledTile;
constexpr int kStep = product::kQuadrantStep;
constexpr int kThreads = product::kQuadrantThreads;
constexpr int kGroups = kTile / kStep;  // of weights: threads beside one another along the input channels
static_assert(kTile == product::kQuadrantTile && kThreads == 2 * kTile);

// A thread of the first half: the next kStep terms of the pixel whose first tap is at (y, x) of the image at `base`.
template <class T>
__device__ __forceinline__ void load_gradients(const Convolution& c, const T* base, int y, int x, TapWalk walk,
                                               float (&out)[kStep]) {
  const int taps = c.y.taps * c.x.taps;
  const auto under = [&](int tap) -> const T* {
    if (base == nullptr || tap >= taps) return nullptr;
    const int at_y = y + tap / c.x.taps, at_x = x + tap % c.x.taps;
    if (at_y < 0 || at_x < 0 || at_y >= c.y.in || at_x >= c.x.in) return nullptr;
    return base + (std::int64_t{at_y} * c.x.in + at_x) * c.cin;
  };
#pragma unroll
  for (int i = 0; i < kStep; ++i) out[i] = 0;
  if (c.cin % kStep == 0) {
    if (const T* from = under(walk.tap); from != nullptr) product::load_step(from + walk.channel, out);
    return;
  }
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    if (const T* from = under(walk.tap); from != nullptr) out[i] = to_float(from[walk.channel]);
    walk.advance(c, 1);
  }
}

// One of the second half: the weights of kStep input channels from `column` on for one term, those of all its taps.
template <class T>
__device__ __forceinline__ void load_weights(const Convolution& forward, const Convolution& c, const T* w, int column,
                                             const TapWalk& walk, float (&out)[kStep]) {
#pragma unroll
  for (int i = 0; i < kStep; ++i) out[i] = 0;
  if (walk.tap >= c.y.taps * c.x.taps || column >= c.cout) return;
  const TapRange ys = gradient_taps(forward.y, c.y, walk.tap / c.x.taps);
  const TapRange xs = gradient_taps(forward.x, c.x, walk.tap % c.x.taps);
  const T* row = w + walk.channel * forward.weight_row() + column;
  for (int ky = ys.first; ky <= ys.last; ++ky)
    for (int kx = xs.first; kx <= xs.last; ++kx) {
      const T* from = row + std::int64_t{ky * forward.x.taps + kx} * forward.cin;
      float tap[kStep];
      if (c.cout % kStep == 0) {
        product::load_step(from, tap);
      } else {
#pragma unroll
        for (int i = 0; i < kStep; ++i) tap[i] = i < c.cout - column ? to_float(from[i]) : 0;
      }
#pragma unroll
      for (int i = 0; i < kStep; ++i) out[i] += tap[i];
    }
}

// `c` is gradient_of(forward, phase_y, phase_x).
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    convolution_dgrad_tiled(const T* __restrict__ dy, const T* __restrict__ w, const T* __restrict__ residual,
                            const __grid_constant__ Convolution forward, const __grid_constant__ Convolution c,
                            int phase_y, int phase_x, const __grid_constant__ DgradFactors factors,
                            T* __restrict__ dx) {
  __shared__ alignas(16) product::QuadrantTiles tiles;
  const auto tiles_n = static_cast<unsigned>((c.cout + kTile - 1) / kTile);
  const std::int64_t row0 = std::int64_t{blockIdx.x / tiles_n} * kTile;
  const int column0 = static_cast<int>(blockIdx.x % tiles_n) * kTile;

  const bool gathers = threadIdx.x < kTile;
  const int line = static_cast<int>(threadIdx.x) % kTile;
  const int term = line / kGroups, group = line % kGroups * kStep;  // of the weights: which k of a step, which columns
  const T* base = nullptr;
  int y = 0, x = 0;
  if (gathers && row0 + line < c.phase_rows()) {
    const Pixel at = row_pixel(c, row0 + line);
    base = dy + at.image * c.y.in * c.x.in * c.cin;
    y = at.y * c.y.stride + c.y.origin;
    x = at.x * c.x.stride + c.x.origin;
  }
  TapWalk walk;
  if (!gathers) walk.advance(c, term);
  const auto load = [&](std::int64_t, float(&out)[kStep]) {
    if (gathers)
      load_gradients(c, base, y, x, walk, out);
    else
      load_weights(forward, c, w, column0 + group, walk, out);
    walk.advance(c, kStep);
  };
  const auto put = [&](int buffer, const float(&next)[kStep]) {
#pragma unroll
    for (int i = 0; i < kStep; ++i) {
      if (gathers)
        tiles.a[buffer][i][line] = next[i];
      else
        tiles.b[buffer][term][group + i] = next[i];
    }
  };
  float sums[8][8] = {};
  product::multiply_tile(tiles, c.k(), load, put, sums);

#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const std::int64_t row = row0 + product::quadrant_row(r);
    if (row >= c.phase_rows()) continue;
    const std::int64_t first = gradient_pixel(forward, phase_y, phase_x, row_pixel(c, row)) * c.cout;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = column0 + product::quadrant_column(i);
      if (column >= c.cout) continue;
      float v = factors.scale * sums[r][i];
      if (residual != nullptr) v = fmaf(factors.residual_scale, to_float(residual[first + column]), v);
      dx[first + column] = from_float<T>(v);
    }
  }
}

}  // namespace

Status launch_dgrad_tiled(const Convolution& forward, DType dtype, const Dgrad& t, const DgradFactors& factors, void*,
                          const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    for (int y = 0; y < gradient_phases(forward.y); ++y)
      for (int x = 0; x < gradient_phases(forward.x); ++x) {
        const Convolution c = gradient_of(forward, y, x);
        const auto blocks = static_cast<unsigned>(tile_count(c, kTile, kTile));
        if (blocks == 0) continue;  // an image of one row or column has no odd ones
        const Status status =
            launch_kernel("convolution_dgrad_tiled", convolution_dgrad_tiled<T>, {.grid = blocks, .block = kThreads},
                          context.stream, static_cast<const T*>(t.dy), static_cast<const T*>(t.w),
                          static_cast<const T*>(t.residual), forward, c, y, x, factors, static_cast<T*>(t.dx));
        if (!status.ok()) return status;
      }
    return success();
  });
}

}  // namespace noisefloor::convolution
