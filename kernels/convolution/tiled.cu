// Convolutions, tiled: shared-memory tiles, register blocking, fp32 FMAs. k runs over taps, then input channels. Half
// of the threads gather a pixel each, the other half a row of weights; both widen to float, transpose, and
// double-buffer through registers.
//
// Better than naive: an input that the block gathers is used for 128 output channels instead of one, a weight for 128
// pixels, and an element that a thread reads from shared memory 8 times, so that FMAs set the pace instead of loads.
//
// Requires: one source, and grid limits; loads are 16 bytes wide where cin is a multiple of 8, else one element each.
// A norm in front is applied to what is gathered, and rounded. Statistics are a second launch.
// Bound: FP32 FMA at 64x64x192 -> 192; expected limiter: FMA issue slots beside shared-memory reads.
// Numerics: one fp32 FMA chain over taps and channels.
// Source: original.
#include "kernels/convolution/epilogue.cuh"
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/product/quadrants.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kTile = kTiledTile;
constexpr int kHalf = kTile / 2;
constexpr int kStep = product::kQuadrantStep;
constexpr int kThreads = product::kQuadrantThreads;
static_assert(kTile == product::kQuadrantTile);

// What one thread gathers: the inputs of one pixel, or the weights of one channel.
template <class T>
struct Source {
  const T* base;
  bool pixel, inside;
  int iy, ix, phase;  // of a pixel: the input under tap 0
  const float* norm;  // of a pixel: its image's, as in Operands

  __device__ __forceinline__ const T* tap(const Convolution& c, int ty, int tx) const {
    if (!inside) return nullptr;
    if (!pixel) return base + std::int64_t{kernel_tap(c, phase, ty, tx)} * c.cin;
    const int y = iy + ty, x = ix + tx;
    if (y < 0 || x < 0 || y >= c.y.in * c.y.repeat || x >= c.x.in * c.x.repeat) return nullptr;
    return base + (std::int64_t{y / c.y.repeat} * c.x.in + x / c.x.repeat) * c.cin;
  }
};

template <class T, bool kNorm>
__device__ __forceinline__ void load_step(const Convolution& c, const Source<T>& source, TapWalk walk, bool wide,
                                          float (&out)[kStep]) {
  constexpr int kLanes = kVectorLanes<T>;
  const int taps = c.y.taps * c.x.taps;
#pragma unroll
  for (int i = 0; i < kStep; ++i) out[i] = 0;
  if (wide) {
    const T* from = walk.tap < taps ? source.tap(c, walk.tap / c.x.taps, walk.tap % c.x.taps) : nullptr;
    if (from == nullptr) return;
#pragma unroll
    for (int i = 0; i < kStep; i += kLanes) {
      float lanes[kLanes];
      load_vector<T, CacheHint::read_only>(from + walk.channel + i, lanes);
#pragma unroll
      for (int j = 0; j < kLanes; ++j) out[i + j] = lanes[j];
    }
    if constexpr (kNorm) {
      if (!source.pixel) return;
#pragma unroll
      for (int i = 0; i < kStep; ++i) out[i] = normed<T>(c, source.norm, walk.channel + i, out[i]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kStep; ++i) {
    const T* from = walk.tap < taps ? source.tap(c, walk.tap / c.x.taps, walk.tap % c.x.taps) : nullptr;
    if (from != nullptr) out[i] = to_float(from[walk.channel]);
    if constexpr (kNorm)
      if (source.pixel && from != nullptr) out[i] = normed<T>(c, source.norm, walk.channel, out[i]);
    walk.advance(c, 1);
  }
}

// `norm` as in Operands; not read without kNorm.
template <class T, bool kNorm>
__global__ void __launch_bounds__(kThreads, 2)
    convolution_tiled(const T* __restrict__ x, const T* __restrict__ w, const float* __restrict__ norm,
                      const __grid_constant__ Convolution c, const __grid_constant__ Epilogue<T> epilogue) {
  __shared__ alignas(16) product::QuadrantTiles tiles;
  const auto tiles_n = static_cast<unsigned>((c.cout + kTile - 1) / kTile);
  const auto tiles_m = static_cast<unsigned>((c.phase_rows() + kTile - 1) / kTile);
  const auto phase = static_cast<int>(blockIdx.x / (tiles_m * tiles_n));
  const std::int64_t row0 = std::int64_t{blockIdx.x / tiles_n % tiles_m} * kTile;
  const int column0 = static_cast<int>(blockIdx.x % tiles_n) * kTile;

  // Which row this thread loads, and where it puts it: neighbouring threads write neighbouring banks.
  const int line = static_cast<int>(threadIdx.x) % kTile;
  Source<T> source{nullptr, threadIdx.x < kTile, false, 0, 0, phase, nullptr};
  if (source.pixel) {
    if (source.inside = row0 + line < c.phase_rows(); source.inside) {
      const Pixel at = row_pixel(c, row0 + line);
      source.base = x + at.image * c.y.in * c.x.in * c.cin;
      if constexpr (kNorm) source.norm = norm + at.image * 2 * c.cin;
      source.iy = at.y * c.y.stride + c.y.origin + phase / c.x.phases * c.y.phase_shift;
      source.ix = at.x * c.x.stride + c.x.origin + phase % c.x.phases * c.x.phase_shift;
    }
  } else if (source.inside = column0 + line < c.cout; source.inside) {
    source.base = w + ((c.phase_weights ? std::int64_t{phase} * c.cout : 0) + column0 + line) * c.weight_row();
  }
  const bool wide = c.cin % kStep == 0;
  float(*target)[kStep][kTile] = source.pixel ? tiles.a : tiles.b;

  const int thread_row = static_cast<int>(threadIdx.x) / 16 * 4;
  const int thread_column = static_cast<int>(threadIdx.x) % 16 * 4;
  float sums[8][8] = {};
  float next[kStep];
  TapWalk walk;
  load_step<T, kNorm>(c, source, walk, wide, next);
  int buffer = 0;
  for (std::int64_t k0 = 0; k0 < c.k(); k0 += kStep, buffer ^= 1) {
#pragma unroll
    for (int i = 0; i < kStep; ++i) target[buffer][i][line] = next[i];
    __syncthreads();  // also: everyone has read the other buffer, which the next step overwrites
    walk.advance(c, kStep);
    load_step<T, kNorm>(c, source, walk, wide, next);
    product::multiply_quadrants(tiles, buffer, thread_row, thread_column, sums);
  }

  const Columns<T, 4> left(epilogue, column0 + thread_column);
  const Columns<T, 4> right(epilogue, column0 + kHalf + thread_column);
#pragma unroll
  for (int r = 0; r < 8; ++r) {
    const std::int64_t row = row0 + thread_row + (r / 4) * kHalf + r % 4;
    if (row >= c.phase_rows()) continue;
    const std::int64_t at = output_pixel(c, phase, row);
    const std::int64_t image = row / c.phase_pixels();
    const float low[4] = {sums[r][0], sums[r][1], sums[r][2], sums[r][3]};
    const float high[4] = {sums[r][4], sums[r][5], sums[r][6], sums[r][7]};
    const std::int64_t added = epilogue.residual_pixel(at);
    left.store(at, low, low, left.ahead(image, added));
    right.store(at, high, high, right.ahead(image, added));
  }
}

}  // namespace

Status launch_tiled(const Convolution& c, DType dtype, const Operands& o, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const Status status = with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>(tile_count(c, kTile, kTile));
    const auto kernel = c.norm == Norm::none ? convolution_tiled<T, false> : convolution_tiled<T, true>;
    return launch_kernel("convolution_tiled", kernel, {.grid = blocks, .block = kThreads}, context.stream,
                         static_cast<const T*>(o.x), static_cast<const T*>(o.w), o.norm, c, Epilogue<T>(c, o));
  });
  return status.ok() && c.stats ? launch_statistics(c, dtype, o, context) : status;
}

}  // namespace noisefloor::convolution
