// Convolutions of few input channels, mma.sync m16n8k16 from sm_80: k, the taps times the channels, is so short that a
// tile's 64 rows of it and its weights lie in shared memory whole, and are multiplied in one pass.
//
// Better than ptx_sm90a: that pads each tap to 64 channels, and lays out rows of fewer than 8 channels in a launch
// before. Here taps stand one behind the other, and one launch does it all. Neighbouring pixels share their taps'
// bytes through L1. Tiles are many and small, so that five blocks of an SM hide each other's one wait.
//
// Requires: bf16 or fp16, at most 32 input channels, 2 to 32 taps, k of at most 288. Statistics are a second launch.
// Honours programmatic launch on sm_90 and newer. Bound: bytes of the output; expected limiter: latency of one tile.
// Numerics: fp32 sums in the tensor core, in order of k: deterministic.
// Source: PTX ISA (mma, ldmatrix, cp.async); otherwise original.
#include <algorithm>

#include "kernels/convolution/narrow.h"
#include "kernels/convolution/sm80_output.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/product/divisor.h"
#include "kernels/product/mma_pipeline.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/shared.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kThreads = 128;

struct NarrowGrid {
  product::Divisor phase_tiles_m, tiles_n;
  product::Divisor pixels, width;  // of a phase of an image
  product::Divisor taps_x;
};

__device__ __forceinline__ void wait_for_launch_before() {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_wait();
#endif
}
__device__ __forceinline__ void let_next_launch_start() {
#if __CUDA_ARCH__ >= 900
  ptx::griddepcontrol_launch_dependents();
#endif
}

// One of kLanes threads that lay a row out in shared memory: taps times channels, zeros behind them. tap_at(tap) is
// where the channels of a tap lie, null outside of the image.
template <class T, bool kWhole, int kLanes, class TapAt>
__device__ __forceinline__ void lay_out(std::uint32_t row, int chunks, int cin, int taps, const void* readable,
                                        const TapAt& tap_at) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  int tap = 0, channel = lane * 8;
  const auto settle = [&] {
    for (; channel >= cin; channel -= cin) ++tap;
  };
  settle();
  for (int chunk = lane; chunk < chunks; chunk += kLanes) {
    const std::uint32_t to = row + chunk * 16;
    if constexpr (kWhole) {  // 8 channels of one tap
      const T* from = tap < taps ? tap_at(tap) : nullptr;
      ptx::cp_async_16_again(to, from ? from + channel : readable, from != nullptr);
      channel += 8 * kLanes;
    } else {
      Run<T, 8> run{};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const T* from = tap < taps ? tap_at(tap) : nullptr;
        if (from) run.v[i] = from[channel];
        if (++channel == cin) channel = 0, ++tap;
      }
      ptx::store_shared(to, *reinterpret_cast<const uint4*>(&run));
      channel += 8 * (kLanes - 1);
    }
    settle();
  }
}

template <class T, int kBlockN, bool kWhole>
__global__ void __launch_bounds__(kThreads)
    convolution_narrow(const T* __restrict__ x, const T* __restrict__ w, const __grid_constant__ Convolution c,
                       const __grid_constant__ NarrowGrid grid, const __grid_constant__ Epilogue<T> epilogue) {
  using Tile = product::MmaTile<kNarrowRows, kBlockN, 64, 4, 1, 1, 1>;
  static_assert(Tile::kThreads == kThreads);
  extern __shared__ __align__(128) unsigned char shared[];
  const int terms = static_cast<int>(c.k()), steps = narrow_steps(terms), row_bytes = narrow_row_bytes(terms);
  const std::uint32_t a_tile = ptx::shared_address(shared), b_tile = a_tile + kNarrowRows * row_bytes;
  const auto tile = static_cast<int>(blockIdx.x);
  const int tile_m = tile / grid.tiles_n, column0 = tile % grid.tiles_n * kBlockN;
  const int phase = tile_m / grid.phase_tiles_m, row0 = tile_m % grid.phase_tiles_m * kNarrowRows;
  const int rows = static_cast<int>(c.phase_rows()), taps = c.y.taps * c.x.taps;

  // The row of A of this thread: its pixel under tap 0, which may lie outside, and a bit per tap that lies inside.
  constexpr int kLanesA = kThreads / kNarrowRows;
  const int line = static_cast<int>(threadIdx.x) / kLanesA, row = row0 + line;
  const int image = row / grid.pixels, at = row % grid.pixels;
  const int iy = at / grid.width * c.y.stride + c.y.origin + c.phase_y(phase) * c.y.phase_shift;
  const int ix = at % grid.width * c.x.stride + c.x.origin + c.phase_x(phase) * c.x.phase_shift;
  unsigned inside = 0;
  if (row < rows)
    for (int ty = 0, tap = 0; ty < c.y.taps; ++ty)
      for (int tx = 0; tx < c.x.taps; ++tx, ++tap)
        inside |= static_cast<unsigned>(iy + ty >= 0 && iy + ty < c.y.in && ix + tx >= 0 && ix + tx < c.x.in) << tap;
  const std::int64_t corner = (std::int64_t{image} * c.y.in + iy) * c.x.in + ix;

  wait_for_launch_before();
  lay_out<T, kWhole, kLanesA>(a_tile + line * row_bytes, 2 * steps, c.cin, taps, x, [&](int tap) -> const T* {
    const int ty = tap / grid.taps_x, tx = tap - ty * grid.taps_x;
    return inside >> tap & 1 ? x + (corner + ty * c.x.in + tx) * c.cin : nullptr;
  });
  constexpr int kLanesB = kThreads / kBlockN;
  const int line_b = static_cast<int>(threadIdx.x) / kLanesB, column = column0 + line_b;
  const T* const row_b = w + ((c.phase_weights ? std::int64_t{phase} * c.cout : 0) + column) * c.weight_row();
  lay_out<T, kWhole, kLanesB>(b_tile + line_b * row_bytes, 2 * steps, c.cin, taps, w, [&](int tap) -> const T* {
    const int ty = tap / grid.taps_x, tx = tap - ty * grid.taps_x;
    return column < c.cout ? row_b + kernel_tap(c, phase, ty, tx) * c.cin : nullptr;
  });
  ptx::cp_async_commit();
  let_next_launch_start();
  ptx::cp_async_wait<0>();
  __syncthreads();

  const product::WarpPlace warp = product::warp_place<Tile>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t from_a = a_tile + (warp.m * 16 + lane % 16) * row_bytes + lane / 16 * 16;
  std::uint32_t from_b = b_tile + (lane / 16 * 8 + lane % 8) * row_bytes + lane / 8 % 2 * 16;
  product::Sums<Tile> sums = {};
  for (int step = 0; step < steps; ++step, from_a += 32, from_b += 32) {
    product::Fragments<Tile> fragments;
    ptx::ldmatrix_x4(fragments.a[0], from_a);
#pragma unroll
    for (int j = 0; j < Tile::kFragmentsN; j += 2)
      ptx::ldmatrix_x4(fragments.b[j][0], fragments.b[j][1], fragments.b[j + 1][0], fragments.b[j + 1][1],
                       from_b + j * 8 * row_bytes);
    product::multiply_fragments<T, Tile>(fragments, sums);
  }
  const Columns<T, kDrained> columns(epilogue, column0 + product::drain_column(kBlockN));
  product::drain_sums<Tile>(sums, shared, false, ToOutput<T>{columns, c, phase, row0, rows});
}

template <class T, int kBlockN, bool kWhole>
Status launch_tile(const Convolution& c, const Operands& o, const LaunchContext& context) {
  using Tile = product::MmaTile<kNarrowRows, kBlockN, 64, 4, 1, 1, 1>;
  constexpr auto kShared = [](std::int64_t terms) {
    return std::max((kNarrowRows + kBlockN) * narrow_row_bytes(terms), Tile::kSlabBytes);
  };
  const auto tiles = [](std::int64_t extent, int tile) { return static_cast<int>((extent + tile - 1) / tile); };
  const NarrowGrid grid{tiles(c.phase_rows(), kNarrowRows), tiles(c.cout, kBlockN), static_cast<int>(c.phase_pixels()),
                        c.x.out, c.x.taps};
  const LaunchShape shape{.grid = static_cast<unsigned>(grid.phase_tiles_m * c.phases() * grid.tiles_n),
                          .block = kThreads,
                          .shared_bytes = static_cast<std::size_t>(kShared(c.k())),
                          .shared_limit = static_cast<std::size_t>(kShared(kNarrowTerms)),
                          .programmatic = context.programmatic_launch};
  return launch_kernel("convolution_narrow", convolution_narrow<T, kBlockN, kWhole>, shape, context.stream,
                       static_cast<const T*>(o.x), static_cast<const T*>(o.w), c, grid, Epilogue<T>(c, o));
}

template <class T, bool kWhole>
Status launch_columns(const Convolution& c, const Operands& o, const LaunchContext& context) {
  if (c.cout <= 16) return launch_tile<T, 16, kWhole>(c, o, context);
  if (c.cout <= 32) return launch_tile<T, 32, kWhole>(c, o, context);
  return launch_tile<T, 64, kWhole>(c, o, context);
}

}  // namespace

Status launch_ptx_sm80_narrow(const Convolution& c, DType dtype, const Operands& o, const Scratch&,
                              const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const Status status = with_half_type(dtype, [&]<class T>(T) {
    return c.cin % 8 == 0 ? launch_columns<T, true>(c, o, context) : launch_columns<T, false>(c, o, context);
  });
  return status.ok() && c.stats ? launch_statistics(c, dtype, o, context) : status;
}

}  // namespace noisefloor::convolution
