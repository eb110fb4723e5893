// wgrad, tensor cores from sm_80: dy^T times the patches under the kernel, on mma.sync m16n8k16. Tiles, parts of the
// pixels and their sums are those of tiled. Rows of k are pixels: cp.async copies runs of 8 channels of them as they
// lie, and ldmatrix transposes both operands on their way to the registers.
//
// Better than tiled: tensor cores multiply, and a stage's loads need no registers.
// Requires: bf16 or fp16. Where channels are no multiples of 8, they are gathered one by one.
// Bound: tensor pipe; expected limiter: mma.sync's issue rate on sm_90, and gathers.
// Numerics: fp32 sums in the tensor core over the pixels of a part, then over parts. Source: PTX ISA; else original.
#include "kernels/convolution/gradient.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/launch.cuh"
#include "kernels/product/mma_pipeline.cuh"

namespace noisefloor::convolution {
namespace {

struct WgradTile : product::MmaTile<kTiledTile, kTiledTile, 32, 2, 4, 1, 3> {
  static constexpr bool kColumnsA = true, kColumnsB = true;
};

// The copies of a stage: of dy and of the patches, one run of 8 channels of every kLines-th pixel a thread.
template <class T>
struct WgradLoader {
  static constexpr int kChunks = kTiledTile / 8;
  static constexpr int kLines = WgradTile::kThreads / kChunks;
  static constexpr int kPasses = WgradTile::kBlockK / kLines;
  static_assert(kLines % 8 == 0, "the permutation of chunks repeats every 8 rows");

  const Convolution& c;
  const T *x, *dy;
  Divider image_pixels, row_pixels;
  int pixel, end;  // of the thread's first line of the next stage
  int channel;     // of dy
  TapWalk walk;    // of the patches
  std::uint32_t offset;

  __device__ __forceinline__ WgradLoader(const Convolution& shape, const T* inputs, const T* gradients,
                                         Divider per_image, Divider per_row, int row0, int column0, int first_pixel,
                                         int last_pixel)
      : c(shape), x(inputs), dy(gradients), image_pixels(per_image), row_pixels(per_row), end(last_pixel) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks, line = static_cast<int>(threadIdx.x) / kChunks;
    pixel = first_pixel + line;
    channel = row0 + chunk * 8;
    walk.tap = (column0 + chunk * 8) / c.cin, walk.channel = (column0 + chunk * 8) % c.cin;
    offset = static_cast<std::uint32_t>(product::swizzled<kTiledTile>(line, chunk));
  }

  // The input pixel of tap `tap` of an output pixel, or null outside.
  __device__ __forceinline__ const T* under(int at, int tap) const {
    if (at >= end || tap >= c.y.taps * c.x.taps) return nullptr;
    const int image = at / image_pixels, within = at - image * image_pixels, y = within / row_pixels;
    const int iy = input_coordinate(c.y, y, 0, tap / c.x.taps);
    const int ix = input_coordinate(c.x, within - y * row_pixels, 0, tap % c.x.taps);
    return iy < 0 || ix < 0 ? nullptr : x + ((std::int64_t{image} * c.y.in + iy) * c.x.in + ix) * c.cin;
  }

  // Copies the next pixels into the stage at shared address `stage`.
  __device__ __forceinline__ void issue(std::uint32_t stage) {
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int at = pixel + i * kLines;
      const std::uint32_t to = stage + offset + i * (kLines * kTiledTile * 2);
      const T* const gradient = dy + std::int64_t{at} * c.cout + channel;
      if (c.cout % 8 == 0) {
        const bool there = at < end && channel < c.cout;
        ptx::cp_async_16(to, there ? gradient : dy, there);
      } else {
        gather(to, [&](int j) { return at < end && channel + j < c.cout ? gradient[j] : T{}; });
      }
      const std::uint32_t to_b = to + WgradTile::kBlockK * kTiledTile * 2;
      if (c.cin % 8 == 0) {
        const T* const from = under(at, walk.tap);
        ptx::cp_async_16(to_b, from != nullptr ? from + walk.channel : x, from != nullptr);
      } else {
        TapWalk each = walk;
        gather(to_b, [&](int) {
          const T* const from = under(at, each.tap);
          const T value = from != nullptr ? from[each.channel] : T{};
          each.advance(c, 1);
          return value;
        });
      }
    }
    pixel += WgradTile::kBlockK;
  }

  template <class Get>
  static __device__ __forceinline__ void gather(std::uint32_t to, const Get& get) {
    alignas(16) T run[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) run[j] = get(j);
    ptx::store_shared(to, *reinterpret_cast<const uint4*>(run));
  }
};

// Writes scale * sums over the part's `pixels` pixels to out[part][cout][k].
template <class T>
__global__ void __launch_bounds__(WgradTile::kThreads, 1)
    convolution_wgrad_sm80(const T* __restrict__ x, const T* __restrict__ dy, const __grid_constant__ Convolution c,
                           Divider per_image, Divider per_row, int pixels, float scale, float* __restrict__ out) {
  extern __shared__ __align__(128) unsigned char shared[];
  const auto columns = static_cast<int>(c.k());
  const auto tiles_n = static_cast<unsigned>((columns + kTiledTile - 1) / kTiledTile);
  const int row0 = static_cast<int>(blockIdx.x / tiles_n) * kTiledTile;
  const int column0 = static_cast<int>(blockIdx.x % tiles_n) * kTiledTile;
  const std::int64_t begin = std::int64_t{blockIdx.y} * pixels, past = begin + pixels;
  const auto end = static_cast<int>(past < c.phase_rows() ? past : c.phase_rows());
  const int steps = (end - static_cast<int>(begin) + WgradTile::kBlockK - 1) / WgradTile::kBlockK;
  WgradLoader<T> loader(c, x, dy, per_image, per_row, row0, column0, static_cast<int>(begin), end);
  product::Sums<WgradTile> sums = {};
  product::multiply_steps<T, WgradTile>(loader, ptx::shared_address(shared), steps, sums);
  const int column = column0 + product::drain_column(WgradTile::kBlockN);
  float* const corner = out + (std::int64_t{blockIdx.y} * c.cout + row0) * columns + column;
  product::drain_sums<WgradTile>(sums, shared, false,
                                 product::ToFp32{corner, c.cout - row0, columns - column, columns, scale});
}

}  // namespace

Status launch_wgrad_tensor_core_sm80(const Convolution& c, DType dtype, const Wgrad& t, float scale, void* workspace,
                                     const LaunchContext& context) {
  const WgradParts parts = wgrad_parts_of(c, t, WgradTile::kBlockK, workspace, *context.device);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(wgrad_tiles(c)), static_cast<unsigned>(parts.parts)),
                          .block = WgradTile::kThreads,
                          .shared_bytes = WgradTile::kSharedBytes,
                          .shared_limit = WgradTile::kSharedBytes};
  const Status status = with_half_type(dtype, [&]<class T>(T) {
    return launch_kernel("convolution_wgrad_sm80", convolution_wgrad_sm80<T>, shape, context.stream,
                         static_cast<const T*>(t.x), static_cast<const T*>(t.dy), c,
                         Divider(static_cast<int>(c.phase_pixels())), Divider(c.x.out), static_cast<int>(parts.pixels),
                         scale, parts.sums);
  });
  return status.ok() ? finish_wgrad(c, dtype, t, scale, parts, workspace, context) : status;
}

}  // namespace noisefloor::convolution
