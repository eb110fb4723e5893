// Convolutions of few input channels, mma.sync m16n8k16 from sm_80: k, the taps times the channels, is so short that a
// tile's 64 rows of it and its weights lie in shared memory whole, and are multiplied in one pass.
//
// Better than ptx_sm90a: that pads each tap to 64 channels, or lays out the product's rows in a launch before. Here
// taps stand one behind the other, and one launch does it all. Neighbouring pixels share their taps' bytes through L1.
// Tiles are many and small, so that up to five blocks of an SM (k of 96 and 64 columns) hide each other's one wait.
//
// Requires: bf16 or fp16, at most 32 input channels, 2 to 32 taps, k of at most 288. Statistics are a second launch.
// Honours programmatic launch on sm_90 and newer. Bound: bytes of the output; expected limiter: latency of one tile.
// Numerics: fp32 sums in the tensor core, in order of k: deterministic.
// Source: PTX ISA (mma, ldmatrix, cp.async); otherwise original.
#include <algorithm>
#include <cstddef>

#include "kernels/convolution/gradient.h"
#include "kernels/convolution/ptx_narrow_epilogue.cuh"
#include "kernels/convolution/ptx_narrow_patch.cuh"
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/product/mma_pipeline.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kThreads = kNarrowThreads;
constexpr int kBlocksPerSm = 5;

template <class T, int kBlockN, bool kWhole>
__global__ void __launch_bounds__(kThreads, kBlocksPerSm)
    convolution_narrow(const T* __restrict__ x, const T* __restrict__ w, const __grid_constant__ Convolution c,
                       const __grid_constant__ NarrowGrid grid, const __grid_constant__ Epilogue<T> epilogue) {
  using Tile = product::MmaTile<kNarrowRows, kBlockN, 64, 4, 1, 1, 1>;
  static_assert(Tile::kThreads == kThreads);
  extern __shared__ __align__(128) unsigned char shared[];  // where sums pass through; A; B
  const std::uint32_t a_tile = ptx::shared_address(shared) + Tile::kSlabBytes;
  const std::uint32_t b_tile = a_tile + kNarrowRows * grid.row_bytes;
  const int tile_m = static_cast<int>(blockIdx.x) / grid.parts_n;
  const int first = static_cast<int>(blockIdx.x) % grid.parts_n * grid.columns;
  const int phase = tile_m / grid.phase_tiles_m, row0 = tile_m % grid.phase_tiles_m * kNarrowRows;

  constexpr int kLanesA = kThreads / kNarrowRows, kLanesB = kThreads / kBlockN;
  const int line = static_cast<int>(threadIdx.x) / kLanesA, line_b = static_cast<int>(threadIdx.x) / kLanesB;
  const NarrowPatch patch(c, grid, phase, row0 + line);
  const auto load_weights = [&](int column0) {
    const int column = column0 + line_b, chunks = grid.steps * 2;
    const T* const from = w + (std::int64_t{phase} * c.cout + min(column, c.cout - 1)) * chunks * 8;
#pragma unroll 4
    for (int chunk = static_cast<int>(threadIdx.x) % kLanesB; chunk < chunks; chunk += kLanesB)
      ptx::cp_async_16_again(b_tile + line_b * grid.row_bytes + chunk * 16, from + chunk * 8, column < c.cout);
    ptx::cp_async_commit();
  };
  ptx::griddepcontrol_wait();
  lay_out_patch<T, kWhole, kLanesA>(a_tile + line * grid.row_bytes, x, patch, grid);
  load_weights(first);
  ptx::griddepcontrol_launch_dependents();

  const product::WarpCoordinate warp = product::warp_coordinate<Tile>();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::uint32_t from_a = a_tile + (warp.m * 16 + lane % 16) * grid.row_bytes + lane / 16 * 16;
  const std::uint32_t from_b = b_tile + (lane / 16 * 8 + lane % 8) * grid.row_bytes + lane / 8 % 2 * 16;
  for (int column0 = first;;) {
    const Columns<T, kDrained> columns(epilogue, column0 + product::drain_column(kBlockN));
    ptx::cp_async_wait<0>();
    __syncthreads();
    product::Sums<Tile> sums = {};
#pragma unroll 3
    for (int step = 0; step < grid.steps; ++step) {
      product::Fragments<Tile> fragments;
      ptx::ldmatrix_x4(fragments.a[0], from_a + step * 32);
#pragma unroll
      for (int j = 0; j < Tile::kFragmentsN; j += 2)
        ptx::ldmatrix_x4(fragments.b[j][0], fragments.b[j][1], fragments.b[j + 1][0], fragments.b[j + 1][1],
                         from_b + j * 8 * grid.row_bytes + step * 32);
      product::multiply_fragments<T, Tile>(fragments, sums);
    }
    const int next = column0 + kBlockN;
    const bool last = next >= min(first + grid.columns, c.cout);
    if (!last) {
      __syncthreads();  // everyone has read B
      load_weights(next);
    }
    store_narrow_tile<T, Tile>(sums, reinterpret_cast<float*>(shared), columns, c, grid, phase, row0);
    if (last) break;
    column0 = next;
  }
}

// Weights as tiles read them: [phases][cout][k in whole steps], a phase's taps one behind the other. A gradient's are
// stored n-major.
template <class T>
__global__ void __launch_bounds__(kThreads)
    order_narrow_weights(const T* __restrict__ w, T* __restrict__ ordered, const __grid_constant__ Convolution c) {
  const int padded = narrow_steps(c.k()) * 16;
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= std::int64_t{c.phases()} * c.cout * padded) return;
  const int term = static_cast<int>(item % padded), tap = term / c.cin;
  const auto column = static_cast<int>(item / padded % c.cout), phase = static_cast<int>(item / padded / c.cout);
  T value{};
  if (term < c.k()) {
    const std::int64_t row = c.phase_weights ? std::int64_t{phase} * c.cout + column : column;
    const int stored = kernel_tap(c, phase, tap / c.x.taps, tap % c.x.taps), channel = term % c.cin;
    value = c.n_major ? w[(std::int64_t{channel} * c.y.kernel_taps * c.x.kernel_taps + stored) * c.cout + column]
                      : w[row * c.weight_row() + stored * c.cin + channel];
  }
  ordered[item] = value;
}

template <class T, int kBlockN, bool kWhole>
Status launch_tile(const Convolution& c, const Operands& o, const void* weights, const LaunchContext& context) {
  using Tile = product::MmaTile<kNarrowRows, kBlockN, 64, 4, 1, 1, 1>;
  constexpr auto kShared = [](std::int64_t terms) {
    return static_cast<std::size_t>(Tile::kSlabBytes + (kNarrowRows + kBlockN) * narrow_row_bytes(terms));
  };
  const auto tiles = [](std::int64_t extent, int tile) { return static_cast<int>((extent + tile - 1) / tile); };
  // Patches are laid out once for all columns, unless there are fewer tiles of rows than SMs hold blocks of short k.
  const int tiles_m = tiles(c.phase_rows(), kNarrowRows), tiles_n = tiles(c.cout, kBlockN);
  const std::int64_t all_m = std::int64_t{tiles_m} * c.phases();
  const int parts =
      static_cast<int>(std::clamp<std::int64_t>(kBlocksPerSm * context.device->sm_count / all_m, 1, tiles_n));
  const int columns = tiles(tiles_n, parts) * kBlockN;
  NarrowGrid grid{.phase_tiles_m = tiles_m,
                  .parts_n = tiles(c.cout, columns),
                  .columns = columns,
                  .pixels = PhasePixels(c),
                  .group = kWhole ? c.cin / 8 : c.cin,
                  .terms = static_cast<int>(c.k()),
                  .steps = narrow_steps(c.k()),
                  .row_bytes = narrow_row_bytes(c.k()),
                  .under_tap = {}};
  for (int tap = 0; tap < c.y.taps * c.x.taps; ++tap)
    grid.under_tap[tap] = (tap / c.x.taps * c.x.in + tap % c.x.taps) * c.cin;
  const LaunchShape shape{.grid = static_cast<unsigned>(all_m * grid.parts_n),
                          .block = kThreads,
                          .shared_bytes = kShared(c.k()),
                          .shared_limit = kShared(kNarrowTerms),
                          .programmatic = context.programmatic_launch};
  return launch_kernel("convolution_narrow", convolution_narrow<T, kBlockN, kWhole>, shape, context.stream,
                       static_cast<const T*>(o.x), static_cast<const T*>(weights), c, grid, Epilogue<T>(c, o));
}

template <class T, bool kWhole>
Status launch_columns(const Convolution& c, const Operands& o, const void* weights, const LaunchContext& context) {
  if (c.cout <= 16) return launch_tile<T, 16, kWhole>(c, o, weights, context);
  if (c.cout <= 32) return launch_tile<T, 32, kWhole>(c, o, weights, context);
  return launch_tile<T, 64, kWhole>(c, o, weights, context);
}

}  // namespace

Status prepare_ptx_sm80_narrow(const Convolution& c, DType dtype, const void* w, bool summed, void* prepared,
                               const LaunchContext& context) {
  if (summed) {  // behind the ordered ones
    void* const sums = static_cast<std::byte*>(prepared) + narrow_weight_bytes(c, dtype);
    if (const Status made = sum_upsampled_weights(c.cin, c.cout, dtype, w, sums, context); !made.ok()) return made;
    w = sums;
  }
  return with_half_type(dtype, [&]<class T>(T) {
    const auto items = static_cast<std::int64_t>(narrow_weight_bytes(c, dtype) / sizeof(T));
    return launch_kernel("order_narrow_weights", order_narrow_weights<T>,
                         {.grid = static_cast<unsigned>((items + kThreads - 1) / kThreads), .block = kThreads},
                         context.stream, static_cast<const T*>(w), static_cast<T*>(prepared), c);
  });
}

Status launch_ptx_sm80_narrow(const Convolution& c, DType dtype, const Operands& o, const Scratch& scratch,
                              const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  if (scratch.prepared == nullptr) return failure(StatusCode::invalid_argument, "convolution: weights not prepared");
  const Status status = with_half_type(dtype, [&]<class T>(T) {
    return c.cin % 8 == 0 ? launch_columns<T, true>(c, o, scratch.prepared, context)
                          : launch_columns<T, false>(c, o, scratch.prepared, context);
  });
  return status.ok() && c.stats ? launch_statistics(c, dtype, o, context) : status;
}

Status launch_dgrad_ptx_sm80_narrow(const Convolution& forward, DType dtype, const Dgrad& tensors,
                                    const DgradFactors& factors, void* workspace, const LaunchContext& context) {
  if (workspace == nullptr) return failure(StatusCode::invalid_argument, "convolution: no workspace");
  auto [c, o] = gradient_launch(forward, 0, 0, tensors, factors);
  c.gain = factors.scale;  // of the sum with a residual
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const Status ordered = prepare_ptx_sm80_narrow(c, dtype, o.w, /*summed=*/false, workspace, context);
  return ordered.ok() ? launch_ptx_sm80_narrow(c, dtype, o, {.prepared = workspace}, context) : ordered;
}

}  // namespace noisefloor::convolution
