// wgrad, tiled: dy^T times the patches under the kernel, in shared-memory tiles with fp32 FMAs
// (kernels/product/quadrants.cuh). Rows are output channels, columns taps and input channels; k runs over output
// pixels. Half of the threads read dy, the other half the inputs under a tap: both lie in memory as the tile wants
// them, a run of channels for each pixel. Pixels fall into parts so that few weights fill the GPU; further launches add
// the parts' sums in their order, and make the biases' gradients (wgrad_channel_sums.cu).
//
// Better than naive: an element that a block gathers is used for 128 weights, and all SMs have work.
//
// Requires: grid limits; loads are 16 bytes wide where channels are multiples of 8, else one element each.
// Bound: FP32 FMA. Numerics: an fp32 FMA chain over the pixels of a part, then over parts. Source: original.
#include "kernels/convolution/gradient.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/product/quadrants.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kTile = kTiledTile;
constexpr int kStep = product::kQuadrantStep;
constexpr int kThreads = product::kQuadrantThreads;
constexpr int kRun = product::kQuadrantStep;  // channels that a thread loads of a pixel
static_assert(kTile == product::kQuadrantTile && kThreads == 2 * kTile && kTile / kRun * kStep == kTile);

// An output pixel, counted over all images, and its place.
struct Place {
  std::int64_t row, image;
  int y, x;

  __device__ __forceinline__ Place(const Convolution& c, std::int64_t first) : row(first) {
    const Pixel at = row_pixel(c, first);
    image = at.image, y = at.y, x = at.x;
  }
  __device__ __forceinline__ void advance(const Convolution& c) {
    row += kStep;
    for (x += kStep; x >= c.x.out; x -= c.x.out)
      if (++y == c.y.out) y = 0, ++image;
  }
};

template <class T>
__device__ __forceinline__ void load_gradients(const Convolution& c, const T* dy, std::int64_t row, int channel,
                                               float (&out)[kRun]) {
  const T* from = dy + row * c.cout + channel;
  if (c.cout % kRun == 0) {
    if (channel < c.cout) product::load_step(from, out);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i)
    if (channel + i < c.cout) out[i] = to_float(from[i]);
}

// The inputs under the taps and channels from `walk` on.
template <class T>
__device__ __forceinline__ void load_patch(const Convolution& c, const T* x, const Place& at, TapWalk walk,
                                           float (&out)[kRun]) {
  const auto under = [&](int tap) -> const T* {
    if (tap >= c.y.taps * c.x.taps) return nullptr;
    const int iy = input_coordinate(c.y, at.y, 0, tap / c.x.taps), ix = input_coordinate(c.x, at.x, 0, tap % c.x.taps);
    return iy < 0 || ix < 0 ? nullptr : x + ((at.image * c.y.in + iy) * c.x.in + ix) * c.cin;
  };
  if (c.cin % kRun == 0) {
    if (const T* from = under(walk.tap); from != nullptr) product::load_step(from + walk.channel, out);
    return;
  }
#pragma unroll
  for (int i = 0; i < kRun; ++i) {
    if (const T* from = under(walk.tap); from != nullptr) out[i] = to_float(from[walk.channel]);
    walk.advance(c, 1);
  }
}

// Writes scale * sums over the part's `pixels` pixels to out[part][cout][k].
template <class T>
__global__ void __launch_bounds__(kThreads, 2)
    convolution_wgrad_tiled(const T* __restrict__ x, const T* __restrict__ dy, const __grid_constant__ Convolution c,
                            std::int64_t pixels, float scale, float* __restrict__ out) {
  __shared__ alignas(16) product::QuadrantTiles tiles;
  const auto columns = static_cast<int>(c.k());
  const auto tiles_n = static_cast<unsigned>((columns + kTile - 1) / kTile);
  const int row0 = static_cast<int>(blockIdx.x / tiles_n) * kTile;
  const int column0 = static_cast<int>(blockIdx.x % tiles_n) * kTile;
  const std::int64_t begin = blockIdx.y * pixels;
  const std::int64_t end = begin + pixels < c.phase_rows() ? begin + pixels : c.phase_rows();

  const bool of_gradients = threadIdx.x < kTile;
  const int line = static_cast<int>(threadIdx.x) % kTile;
  const int term = line / (kTile / kRun), group = line % (kTile / kRun) * kRun;
  Place at(c, begin + term);
  TapWalk walk;
  if (!of_gradients) walk.tap = (column0 + group) / c.cin, walk.channel = (column0 + group) % c.cin;
  const auto load = [&](std::int64_t, float(&values)[kRun]) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) values[i] = 0;
    if (at.row < end) {
      if (of_gradients)
        load_gradients(c, dy, at.row, row0 + group, values);
      else
        load_patch(c, x, at, walk, values);
    }
    at.advance(c);
  };
  float(*target)[kStep][kTile] = of_gradients ? tiles.a : tiles.b;
  const auto put = [&](int buffer, const float(&next)[kRun]) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) target[buffer][term][group + i] = next[i];
  };
  float sums[8][8] = {};
  product::multiply_tile(tiles, end - begin, load, put, sums);

  float* const part = out + blockIdx.y * std::int64_t{c.cout} * columns;
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const int row = row0 + product::quadrant_row(r);
    if (row >= c.cout) continue;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = column0 + product::quadrant_column(i);
      if (column < columns) part[std::int64_t{row} * columns + column] = scale * sums[r][i];
    }
  }
}

}  // namespace

Status launch_wgrad_tiled(const Convolution& c, DType dtype, const Wgrad& t, float scale, void* workspace,
                          const LaunchContext& context) {
  const WgradParts parts = wgrad_parts_of(c, t, kStep, workspace, *context.device);
  const dim3 grid(static_cast<unsigned>(wgrad_tiles(c)), static_cast<unsigned>(parts.parts));
  const Status status = with_type(dtype, [&]<class T>(T) {
    return launch_kernel("convolution_wgrad_tiled", convolution_wgrad_tiled<T>, {.grid = grid, .block = kThreads},
                         context.stream, static_cast<const T*>(t.x), static_cast<const T*>(t.dy), c, parts.pixels,
                         scale, parts.sums);
  });
  return status.ok() ? finish_wgrad(c, dtype, t, scale, parts, workspace, context) : status;
}

}  // namespace noisefloor::convolution
