// Convolutions, tensor cores from sm_80: implicit GEMM on mma.sync m16n8k16, fed by a pipeline of asynchronous copies.
// Rows are pixels, k the taps times the input channels, split between blocks where tiles are few. Tiles, fragments and
// the model that chooses them: kernels/product. An upsample runs as four phases of summed weights.
//
// Better than tiled: cp.async gathers the inputs of a stage straight into shared memory (16 bytes, 8 channels of one
// tap of one pixel; zeros where the tap lies outside), 16-bit tiles halve the traffic, and tensor cores multiply.
//
// Requires: bf16 or fp16, at most 32 taps in a phase, summed weights for an upsample. Statistics are a second launch.
// Where cin is not a multiple of 8, elements are gathered one by one through registers, in 128x64 tiles. A gradient's
// weights come as rows of k, which ldmatrix transposes: with cin a multiple of 8.
// Bound: tensor pipe; expected limiter: mma.sync's issue rate on sm_90.
// Numerics: fp32 sums in the tensor core, in order of k, then parts in order: deterministic.
// Source: PTX ISA (mma, ldmatrix, cp.async); otherwise original.
#include "kernels/convolution/epilogue.cuh"
#include "kernels/convolution/gradient.h"
#include "kernels/convolution/schedule.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/product/mma_pipeline.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::convolution {
namespace {

using product::drain_column;
using product::Fragments;
using product::kDrained;
using product::Sm80Shape;
using product::Sm80Tile;
using product::Sums;
using product::swizzled;
using product::warp_coordinate;
using product::WarpCoordinate;

template <class Op>
struct Grid {
  unsigned tiles_m;  // of all phases
  unsigned phase_tiles_m, tiles_n;
  unsigned splits;
  float* partials;  // null without a split
  typename Op::Pixels pixels;
};

// One thread's share of the copies of a stage: chunk `chunk` of every kRows-th pixel and row of weights.
template <class T, class Tile, bool kNarrow, class Op>
struct Loader {
  static constexpr int kChunks = Tile::kBlockK / 8;
  static constexpr int kRows = Tile::kThreads / kChunks;
  static constexpr int kPassesA = Tile::kBlockM / kRows, kPassesB = Tile::kBlockN / kRows;
  static_assert(kRows % 8 == 0 && kPassesB > 0, "the permutation of chunks repeats every 8 rows");
  // Of a gradient's weights, whose rows are k.
  static constexpr int kChunksB = Tile::kBlockN / 8, kStepB = Tile::kThreads / kChunksB;
  static_assert(kStepB % 8 == 0 && Tile::kBlockK % kStepB == 0);

  const Convolution& c;
  const T *x, *w;           // w: the thread's first row, at kernel tap 0 of the phase
  int pixel[kPassesA];      // input pixel under tap 0; may lie outside
  unsigned taps[kPassesA];  // bit per tap that lies inside, so that a step along k costs a row one multiply-add
  int tap = 0, channel;     // of the next stage
  int phase, b_rows;        // rows of weights from the thread's first on
  std::uint32_t offset;
  int b_tap, b_channel;  // of a gradient's next weights

  __device__ __forceinline__ Loader(const Convolution& shape, const T* inputs, const T* weights, int the_phase,
                                    std::int64_t row0, int column0, int k_begin)
      : c(shape), x(inputs), phase(the_phase) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int line = static_cast<int>(threadIdx.x) / kChunks;
    offset = static_cast<std::uint32_t>(swizzled<Tile::kBlockK>(line, chunk));
    channel = k_begin + chunk * 8;
    if constexpr (!kNarrow) {
      tap = channel / c.cin;
      channel %= c.cin;
    }
#pragma unroll
    for (int i = 0; i < kPassesA; ++i) {
      const std::int64_t row = row0 + line + i * kRows;
      taps[i] = 0;
      pixel[i] = 0;
      if (row >= c.phase_rows()) continue;
      const auto pixels = static_cast<int>(c.phase_pixels());  // rows are below 2^31: can_run
      const int image = static_cast<int>(row) / pixels;
      const int y = static_cast<int>(row) % pixels / c.x.out, x_out = static_cast<int>(row) % pixels % c.x.out;
      const int iy = y * c.y.stride + c.y.origin + phase / c.x.phases * c.y.phase_shift;
      const int ix = x_out * c.x.stride + c.x.origin + phase % c.x.phases * c.x.phase_shift;
      pixel[i] = (image * c.y.in + iy) * c.x.in + ix;
      for (int ty = 0; ty < c.y.taps; ++ty)
        for (int tx = 0; tx < c.x.taps; ++tx)
          taps[i] |= static_cast<unsigned>(iy + ty >= 0 && iy + ty < c.y.in && ix + tx >= 0 && ix + tx < c.x.in)
                     << (ty * c.x.taps + tx);
    }
    const int column = column0 + line;
    b_rows = c.cout - column;
    if constexpr (kIsGradient<Op>) {
      const int first = column0 + static_cast<int>(threadIdx.x) % kChunksB * 8;
      b_rows = c.cout - first;
      w = weights + first;
      b_channel = k_begin + static_cast<int>(threadIdx.x) / kChunksB;
      b_tap = b_channel / c.cin;
      b_channel %= c.cin;
      return;
    }
    w = weights + ((c.phase_weights ? std::int64_t{phase} * c.cout : 0) + column) * c.weight_row();
  }

  __device__ __forceinline__ int tap_pixel(int t) const {
    return t / c.x.taps * c.x.in + t % c.x.taps;
  }
  __device__ __forceinline__ const T* tap_weights(int t) const {
    return w + std::int64_t{kernel_tap(c, phase, t / c.x.taps, t % c.x.taps)} * c.cin;
  }

  // The next step's weights of a gradient: 8 outputs of every kStepB-th term.
  __device__ __forceinline__ void issue_columns(std::uint32_t to) {
    const auto line = static_cast<int>(threadIdx.x) / kChunksB, chunk = static_cast<int>(threadIdx.x) % kChunksB;
    const std::int64_t row = std::int64_t{c.y.kernel_taps} * c.x.kernel_taps * c.cout;
    const int all = c.y.taps * c.x.taps;
    to += static_cast<std::uint32_t>(swizzled<Tile::kBlockN>(line, chunk));
#pragma unroll
    for (int i = 0; i < Tile::kBlockK / kStepB; ++i) {
      const bool inside = b_tap < all && b_rows > 0;
      const int tap = inside ? kernel_tap(c, 0, b_tap / c.x.taps, b_tap % c.x.taps) : 0;
      ptx::cp_async_16(to + i * kStepB * Tile::kBlockN * 2, w + b_channel * row + std::int64_t{tap} * c.cout, inside);
      for (b_channel += kStepB; b_channel >= c.cin; b_channel -= c.cin) ++b_tap;
    }
  }

  // Copies the next step of k into the stage at shared address `stage`.
  __device__ __forceinline__ void issue(std::uint32_t stage) {
    constexpr int kPassBytes = kRows * Tile::kBlockK * 2;
    const std::uint32_t to = stage + offset, to_b = to + Tile::kBlockM * Tile::kBlockK * 2;
    const int all = c.y.taps * c.x.taps;
    if constexpr (kNarrow) {
      gather_narrow(to, to_b, all);
    } else {
      const bool inside = tap < all;
      const int t = inside ? tap : 0;
      const int under = tap_pixel(t);
#pragma unroll
      for (int i = 0; i < kPassesA; ++i)
        ptx::cp_async_16(to + i * kPassBytes, x + std::int64_t{pixel[i] + under} * c.cin + channel,
                         inside && (taps[i] >> t & 1));
      if constexpr (!kIsGradient<Op>) {
        const T* from = tap_weights(t) + channel;
#pragma unroll
        for (int i = 0; i < kPassesB; ++i)
          ptx::cp_async_16(to_b + i * kPassBytes, from + i * kRows * c.weight_row(), inside && i * kRows < b_rows);
      }
      for (channel += Tile::kBlockK; channel >= c.cin; channel -= c.cin) ++tap;
    }
    if constexpr (kIsGradient<Op>) issue_columns(stage + Tile::kBlockM * Tile::kBlockK * 2);
  }

  __device__ __forceinline__ void gather_narrow(std::uint32_t to, std::uint32_t to_b, int all) {
    constexpr int kPassBytes = kRows * Tile::kBlockK * 2;
    Run<T, 8> a[kPassesA];
    [[maybe_unused]] Run<T, 8> b[kPassesB];
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int k = channel + j;
      const int t = k / c.cin, at = k % c.cin;
      const bool inside = t < all;
      const int under = inside ? tap_pixel(t) : 0;
#pragma unroll
      for (int i = 0; i < kPassesA; ++i)
        a[i].v[j] = inside && (taps[i] >> t & 1) ? x[std::int64_t{pixel[i] + under} * c.cin + at] : T{};
      if constexpr (!kIsGradient<Op>) {
#pragma unroll
        for (int i = 0; i < kPassesB; ++i)
          b[i].v[j] = inside && i * kRows < b_rows ? tap_weights(t)[at + i * kRows * c.weight_row()] : T{};
      }
    }
#pragma unroll
    for (int i = 0; i < kPassesA; ++i) store_shared(to + i * kPassBytes, a[i]);
    if constexpr (!kIsGradient<Op>) {
#pragma unroll
      for (int i = 0; i < kPassesB; ++i) store_shared(to_b + i * kPassBytes, b[i]);
    }
    channel += Tile::kBlockK;
  }

  static __device__ __forceinline__ void store_shared(std::uint32_t to, const Run<T, 8>& run) {
    const uint4 bits = *reinterpret_cast<const uint4*>(&run);
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(bits.x), "r"(bits.y), "r"(bits.z),
                 "r"(bits.w)
                 : "memory");
  }
};

template <class T, class Tile, int kBlocksPerSm, bool kNarrow, class Op>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksPerSm)
    convolution_sm80(const T* __restrict__ x, const T* __restrict__ w, const __grid_constant__ Convolution c,
                     const __grid_constant__ Grid<Op> grid, const __grid_constant__ Epilogue<T, Op> epilogue) {
  extern __shared__ __align__(128) unsigned char shared[];
  const unsigned tiles = grid.tiles_m * grid.tiles_n;
  const unsigned split = blockIdx.x / tiles;
  unsigned tile_m, tile_n;
  product::tile_coordinate(grid, blockIdx.x % tiles, tile_m, tile_n);
  const auto phase = static_cast<int>(tile_m / grid.phase_tiles_m);
  const auto row0 = static_cast<int>(tile_m % grid.phase_tiles_m) * Tile::kBlockM;
  const auto column0 = static_cast<int>(tile_n) * Tile::kBlockN;
  const auto all_steps = static_cast<unsigned>((c.k() + Tile::kBlockK - 1) / Tile::kBlockK);
  const unsigned part = (all_steps + grid.splits - 1) / grid.splits;
  const int steps = static_cast<int>(min(part, all_steps - split * part));

  Loader<T, Tile, kNarrow, Op> loader(c, x, w, phase, row0, column0, static_cast<int>(split * part) * Tile::kBlockK);
  Sums<Tile> sums = {};
  product::multiply_steps<T, Tile>(loader, ptx::shared_address(shared), steps, sums);

  if (grid.partials == nullptr) {
    const Columns<T, kDrained, Op> columns(epilogue, column0 + drain_column(Tile::kBlockN));
    product::drain_sums<Tile>(
        sums, shared, false,
        ToOutput<T, kDrained, Op>{columns, c, grid.pixels, phase, row0, static_cast<int>(c.phase_rows())});
  } else {
    const std::int64_t stride = std::int64_t{grid.tiles_n} * Tile::kBlockN;
    float* corner = grid.partials + (std::int64_t{split} * grid.tiles_m + tile_m) * Tile::kBlockM * stride + column0 +
                    drain_column(Tile::kBlockN);
    product::drain_sums<Tile>(sums, shared, false, product::ToPartials{corner, stride});
  }
}

// Adds the parts of kDrained outputs in order, then the epilogue. `part_floats` separates parts, `stride` rows, and
// `padded_rows` phases.
template <class T, class Op>
__global__ void __launch_bounds__(128)
    convolution_sm80_add_parts(const float* __restrict__ partials, const __grid_constant__ Convolution c,
                               std::int64_t part_floats, std::int64_t stride, std::int64_t padded_rows, int splits,
                               const __grid_constant__ typename Op::Pixels pixels,
                               const __grid_constant__ Epilogue<T, Op> epilogue) {
  ptx::griddepcontrol_wait();  // launched while the parts are still being made
  const int groups = (c.cout + kDrained - 1) / kDrained;
  const std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (item >= c.rows() * groups) return;
  const auto all_row = static_cast<int>(item / groups);
  const int column = static_cast<int>(item % groups) * kDrained;
  const auto rows = static_cast<int>(c.phase_rows());
  const int phase = all_row / rows, row = all_row % rows;
  const float* from = partials + (phase * padded_rows + row) * stride + column;
  float values[kDrained] = {};
  for (int s = 0; s < splits; ++s, from += part_floats) {
    const auto part = *reinterpret_cast<const float4*>(from);
    values[0] += part.x, values[1] += part.y, values[2] += part.z, values[3] += part.w;
  }
  const Columns<T, kDrained, Op> columns(epilogue, column);
  const ToOutput<T, kDrained, Op> out{columns, c, pixels, phase, 0, rows};
  out.take(row, values, values, out.prefetch(row));
}

template <Sm80Tile tile, class Op>
struct OpTile : product::Sm80MmaTile<tile> {
  static constexpr bool kColumnsB = kIsGradient<Op>;
};

template <class T, Sm80Tile tile, class Op, bool kNarrow = false>
Status launch_tile(const Convolution& c, const typename Op::Operands& o, const Sm80Plan& plan, float* partials,
                   const LaunchContext& context) {
  constexpr Sm80Shape kShape = shape_of(tile);
  using Tile = OpTile<tile, Op>;
  constexpr int kBlocksPerSm = kNarrow ? 2 : kShape.blocks_per_sm;  // gathering needs registers
  const Grid<Op> grid{static_cast<unsigned>(plan.phase_tiles_m * c.phases()),
                      static_cast<unsigned>(plan.phase_tiles_m),
                      static_cast<unsigned>(plan.tiles_n),
                      static_cast<unsigned>(plan.splits),
                      partials,
                      typename Op::Pixels(c, o)};
  const LaunchShape shape{.grid = static_cast<unsigned>(plan.blocks()),
                          .block = Tile::kThreads,
                          .shared_bytes = Tile::kSharedBytes,
                          .shared_limit = Tile::kSharedBytes};
  return launch_kernel("convolution_sm80", convolution_sm80<T, Tile, kBlocksPerSm, kNarrow, Op>, shape, context.stream,
                       static_cast<const T*>(o.x), static_cast<const T*>(o.w), c, grid, Epilogue<T, Op>(c, o));
}

template <class T, class Op>
Status launch_plan(const Convolution& c, const typename Op::Operands& o, const Sm80Plan& plan, float* partials,
                   const LaunchContext& context) {
  if (c.cin % 8 != 0) return launch_tile<T, Sm80Tile::medium_128x64, Op, true>(c, o, plan, partials, context);
  return product::with_sm80_tile(
      plan.tile, [&]<Sm80Tile tile>() { return launch_tile<T, tile, Op>(c, o, plan, partials, context); });
}

template <class T, class Op>
Status add_parts(const Convolution& c, const typename Op::Operands& o, const Sm80Plan& plan, const float* partials,
                 const LaunchContext& context) {
  constexpr int kThreads = 128;
  const Sm80Shape tile = shape_of(plan.tile);
  const std::int64_t stride = plan.tiles_n * tile.block_n;
  const std::int64_t padded_rows = plan.phase_tiles_m * tile.block_m;
  const std::int64_t items = c.rows() * ((c.cout + kDrained - 1) / kDrained);
  const LaunchShape shape{.grid = static_cast<unsigned>((items + kThreads - 1) / kThreads),
                          .block = kThreads,
                          .programmatic = context.device->compute_capability >= 90};
  return launch_kernel("convolution_sm80_add_parts", convolution_sm80_add_parts<T, Op>, shape, context.stream, partials,
                       c, c.phases() * padded_rows * stride, stride, padded_rows, plan.splits,
                       typename Op::Pixels(c, o), Epilogue<T, Op>(c, o));
}

template <class Op>
Status launch_product(const Convolution& c, DType dtype, const typename Op::Operands& o, void* workspace,
                      const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const Sm80Plan plan = choose_sm80_plan(c, *context.device);
  auto* partials = plan.splits > 1 ? static_cast<float*>(workspace) : nullptr;
  if (plan.splits > 1 && partials == nullptr) return failure(StatusCode::invalid_argument, "convolution: no workspace");
  return with_half_type(dtype, [&]<class T>(T) -> Status {
    const Status made = launch_plan<T, Op>(c, o, plan, partials, context);
    return made.ok() && plan.splits > 1 ? add_parts<T, Op>(c, o, plan, partials, context) : made;
  });
}

}  // namespace

Status launch_tensor_core_sm80(const Convolution& c, DType dtype, const Operands& o, const Scratch& scratch,
                               const LaunchContext& context) {
  const Status status = launch_product<Outputs>(c, dtype, o, scratch.workspace, context);
  return status.ok() && c.stats ? launch_statistics(c, dtype, o, context) : status;
}

Status launch_dgrad_tensor_core_sm80(const Convolution& forward, DType dtype, const Dgrad& tensors,
                                     const DgradFactors& factors, void* workspace, const LaunchContext& context) {
  const std::size_t sums = gradient_weight_bytes(forward, dtype);
  if (sums > 0) {
    if (workspace == nullptr) return failure(StatusCode::invalid_argument, "convolution: no workspace");
    const Status summed = sum_gradient_weights(forward, dtype, tensors.w, workspace, context);
    if (!summed.ok()) return summed;
  }
  for (int y = 0; y < gradient_phases(forward.y); ++y)
    for (int x = 0; x < gradient_phases(forward.x); ++x) {
      auto [c, o] = gradient_launch(forward, y, x, tensors, factors);
      if (c.rows() == 0) continue;  // an image of one row or column has no odd ones
      if (sums > 0) o.w = workspace;
      void* const partials = workspace == nullptr ? nullptr : static_cast<std::uint8_t*>(workspace) + sums;
      if (const Status status = launch_product<GradientOutputs>(c, dtype, o, partials, context); !status.ok())
        return status;
    }
  return success();
}

}  // namespace noisefloor::convolution
