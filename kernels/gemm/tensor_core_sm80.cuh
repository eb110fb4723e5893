// The kernels of tensor_core_sm80 and their launch, of any layout. Device code, and host code of .cu files.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/gemm/launchers.h"
#include "kernels/gemm/mma_gradient.cuh"
#include "kernels/gemm/mma_output.cuh"
#include "kernels/product/mma_pipeline.cuh"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::gemm {
namespace {

struct Grid {
  std::int64_t m, k;
  unsigned tiles_m, tiles_n;
  unsigned splits;
  float* partials;  // null without a split
};

// One thread's share of the copies of a stage: chunk `chunk` of every kRows-th row of A and B.
template <class T, class Tile>
struct Loader {
  static constexpr int kChunks = Tile::kBlockK / 8;
  static constexpr int kRows = Tile::kThreads / kChunks;
  static constexpr int kPassesA = Tile::kBlockM / kRows, kPassesB = Tile::kBlockN / kRows;
  static_assert(kRows % 8 == 0, "the permutation of chunks repeats every 8 rows");
  static_assert(kRows == 8 || kRows % 16 == 0, "see b_offset");
  static_assert(kPassesA <= 32 && kPassesB <= 32, "one mask bit per pass");

  const T *a, *b;  // of the next stage
  std::int64_t n, k, k_next;
  std::uint32_t a_valid = 0, b_valid = 0, offset;
  bool gated;

  __device__ __forceinline__ Loader(const T* a_all, const T* b_all, std::int64_t m, std::int64_t n_all,
                                    std::int64_t k_all, std::int64_t tile_m, std::int64_t tile_n, std::int64_t k_begin,
                                    bool is_gated)
      : n(n_all), k(k_all), gated(is_gated) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const int row = static_cast<int>(threadIdx.x) / kChunks;
    offset = static_cast<std::uint32_t>(swizzled<Tile::kBlockK>(row, chunk));
    k_next = k_begin + chunk * 8;
    const std::int64_t a_row = tile_m * Tile::kBlockM + row;
    a = a_all + a_row * k + k_next;
#pragma unroll
    for (int i = 0; i < kPassesA; ++i) a_valid |= static_cast<std::uint32_t>(a_row + i * kRows < m) << i;
    // With no such row in B, b is never read.
    b = b_all + b_row<Tile>(tile_n, row, n, gated) * k + k_next;
#pragma unroll
    for (int i = 0; i < kPassesB; ++i)
      b_valid |= static_cast<std::uint32_t>(b_row<Tile>(tile_n, row + i * kRows, n, gated) >= 0) << i;
  }

  // From the thread's first row of B to that of pass i; for geglu rows alternate, 8 values and 8 gates.
  __device__ __forceinline__ std::int64_t b_offset(int i) const {
    if (!gated) return i * kRows * k;
    if constexpr (kRows % 16 == 0) return i * (kRows / 2) * k;
    return (i / 2 * 8 + (i % 2) * n) * k;
  }

  // Copies the next step of k into the stage at shared address `stage`.
  __device__ __forceinline__ void issue(std::uint32_t stage) {
    constexpr int kPassBytes = kRows * Tile::kBlockK * 2;
    const bool inside = k_next < k;
    const std::uint32_t a_mask = inside ? a_valid : 0, b_mask = inside ? b_valid : 0;
    const std::uint32_t to = stage + offset;
#pragma unroll
    for (int i = 0; i < kPassesA; ++i) ptx::cp_async_16(to + i * kPassBytes, a + i * kRows * k, a_mask >> i & 1);
#pragma unroll
    for (int i = 0; i < kPassesB; ++i)
      ptx::cp_async_16(to + Tile::kBlockM * Tile::kBlockK * 2 + i * kPassBytes, b + b_offset(i), b_mask >> i & 1);
    a += Tile::kBlockK;
    b += Tile::kBlockK;
    k_next += Tile::kBlockK;
  }
};

template <class T, class Tile>
struct FindLoader {
  using Type = Loader<T, Tile>;
};
template <class T, class Base, Layout kLayout>
struct FindLoader<T, GradientTile<Base, kLayout>> {
  using Type = typename GradientTile<Base, kLayout>::template Loader<T>;
};
template <class T, class Tile>
using LoaderOf = typename FindLoader<T, Tile>::Type;

// A block's tile, and its part of k.
struct Place {
  unsigned tile_m, tile_n, split;
  std::int64_t k_begin;
  int steps;
};
template <class Tile>
__device__ __forceinline__ Place place_of(const Grid& grid) {
  const unsigned tiles = grid.tiles_m * grid.tiles_n;
  const unsigned split = blockIdx.x / tiles;
  unsigned tile_m, tile_n;
  product::tile_coordinate(grid, blockIdx.x % tiles, tile_m, tile_n);
  const auto all_steps = static_cast<unsigned>((grid.k + Tile::kBlockK - 1) / Tile::kBlockK);
  const unsigned part = (all_steps + grid.splits - 1) / grid.splits;
  return {tile_m, tile_n, split, static_cast<std::int64_t>(split) * part * Tile::kBlockK,
          static_cast<int>(min(part, all_steps - split * part))};
}

// Of layouts nt and nn.
template <class T, class Tile, int kBlocksPerSm>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksPerSm)
    gemm_sm80(const T* __restrict__ a, const T* __restrict__ b, Grid grid, Epilogue<T> epilogue) {
  extern __shared__ __align__(128) unsigned char shared[];
  const auto [tile_m, tile_n, split, k_begin, steps] = place_of<Tile>(grid);
  LoaderOf<T, Tile> loader(a, b, grid.m, epilogue.columns, grid.k, tile_m, tile_n, k_begin, epilogue.gated);
  // Bias is asked for now, so that it has long arrived when the sums are done.
  const int outputs = epilogue.gated ? Tile::kBlockN / 2 : Tile::kBlockN;
  const Columns<T, kDrained> columns(epilogue, std::int64_t{tile_n} * outputs + drain_column(outputs));
  Sums<Tile> sums = {};
  product::multiply_steps<T, Tile>(loader, ptx::shared_address(shared), steps, sums);

  const std::int64_t row0 = std::int64_t{tile_m} * Tile::kBlockM;
  if (grid.partials == nullptr) {
    product::drain_sums<Tile>(sums, shared, epilogue.gated, ToOutput<T>{columns, row0, grid.m});
  } else {
    const std::int64_t stride = std::int64_t{grid.tiles_n} * Tile::kBlockN;
    float* corner = grid.partials + (split * std::int64_t{grid.tiles_m} * Tile::kBlockM + row0) * stride +
                    std::int64_t{tile_n} * Tile::kBlockN + drain_column(Tile::kBlockN);
    product::drain_sums<Tile>(sums, shared, false, product::ToPartials{corner, stride});
  }
}

// Of layout tn, whose D and row sums are fp32, of each part of k.
template <class T, class Tile, int kBlocksPerSm>
__global__ void __launch_bounds__(Tile::kThreads, kBlocksPerSm)
    gemm_sm80_fp32(const T* __restrict__ a, const T* __restrict__ b, Grid grid, int n, float scale,
                   float* __restrict__ d, float* __restrict__ row_sums) {
  extern __shared__ __align__(128) unsigned char shared[];
  const auto [tile_m, tile_n, split, k_begin, steps] = place_of<Tile>(grid);
  LoaderOf<T, Tile> loader(a, b, grid.m, n, grid.k, tile_m, tile_n, k_begin, false);
  Sums<Tile> sums = {};
  float line_sums[Tile::kFragmentsM][4] = {};
  const bool sums_rows = row_sums != nullptr && tile_n == 0;
  const RowSums<T, Tile> lines{line_sums, sums_rows && warp_coordinate<Tile>().n == 0};
  product::multiply_steps<T, Tile>(loader, ptx::shared_address(shared), steps, sums, lines);

  const int row0 = static_cast<int>(tile_m) * Tile::kBlockM, rows = static_cast<int>(grid.m) - row0;
  const int column = static_cast<int>(tile_n) * Tile::kBlockN + drain_column(Tile::kBlockN);
  const std::int64_t first_row = split * grid.m + row0;
  product::drain_sums<Tile>(sums, shared, false,
                            product::ToFp32{d + first_row * n + column, rows, n - column, n, scale});
  if (!sums_rows) return;
  lines.drain(reinterpret_cast<float*>(shared), [&](int row, float sum) {
    if (row < rows) row_sums[first_row + row] = scale * sum;
  });
}

// Adds the parts of kDrained outputs in order, then the epilogue. `part_floats` separates parts, `stride` rows.
template <class T>
__global__ void __launch_bounds__(128)
    gemm_sm80_add_parts(const float* __restrict__ partials, std::int64_t m, std::int64_t part_floats,
                        std::int64_t stride, int splits, Epilogue<T> epilogue) {
  using Four = Run<float, kDrained>;
  ptx::griddepcontrol_wait();  // launched while the parts are still being made
  const std::int64_t groups = (epilogue.columns + kDrained - 1) / kDrained;
  const std::int64_t item = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t row = item / groups;
  const std::int64_t column = item % groups * kDrained;
  if (row >= m) return;
  const bool gated = epilogue.gated;
  const float* from = partials + row * stride + (gated ? column / 8 * 16 + column % 8 : column);
  float values[kDrained] = {}, gates[kDrained] = {};
  for (int s = 0; s < splits; ++s, from += part_floats) {
    const auto value = *reinterpret_cast<const Four*>(from);
    const auto gate = gated ? *reinterpret_cast<const Four*>(from + 8) : Four{};
#pragma unroll
    for (int c = 0; c < kDrained; ++c) values[c] += value.v[c], gates[c] += gate.v[c];
  }
  const Columns<T, kDrained> outputs(epilogue, column);
  outputs.store(row, values, gates, outputs.ahead(row));
}

template <class T, Sm80Tile tile, Layout kLayout>
Status launch_tile(const Problem& problem, const Tensors& tensors, const Sm80Plan& plan, float* partials,
                   const LaunchContext& context) {
  constexpr Sm80Shape kShape = shape_of(tile);
  using Tile = product::Sm80MmaTile<tile>;
  static_assert(Tile::kSharedBytes == kShape.shared_bytes(), "the epilogue fits where the pipeline was");
  const Grid grid{problem.m,
                  problem.k,
                  static_cast<unsigned>(plan.tiles_m),
                  static_cast<unsigned>(plan.tiles_n),
                  static_cast<unsigned>(plan.splits),
                  partials};
  const LaunchShape shape{.grid = static_cast<unsigned>(plan.tiles() * plan.splits),
                          .block = Tile::kThreads,
                          .shared_bytes = Tile::kSharedBytes,
                          .shared_limit = Tile::kSharedBytes};
  const auto launch = [&](auto* kernel, const auto&... output) {
    return launch_kernel("gemm_sm80", kernel, shape, context.stream, static_cast<const T*>(tensors.a),
                         static_cast<const T*>(tensors.b), grid, output...);
  };
  using Rows = GradientTile<Tile, kLayout>;
  if constexpr (kLayout == Layout::nt)
    return launch(gemm_sm80<T, Tile, kShape.blocks_per_sm>, Epilogue<T>(problem, tensors));
  else if constexpr (kLayout == Layout::nn)
    return launch(gemm_sm80<T, Rows, kShape.blocks_per_sm>, Epilogue<T>(problem, tensors));
  else
    return launch(gemm_sm80_fp32<T, Rows, kShape.blocks_per_sm>, static_cast<int>(problem.n),
                  static_cast<float>(problem.scale), static_cast<float*>(tensors.d), tensors.row_sums);
}

// Behind the parts of k.
template <class T>
Status launch_add_parts(const Problem& problem, const Tensors& tensors, const Sm80Plan& plan, const float* partials,
                        const LaunchContext& context) {
  constexpr int kThreads = 128;
  const Sm80Shape tile = shape_of(plan.tile);
  const std::int64_t stride = plan.tiles_n * tile.block_n, part_rows = plan.tiles_m * tile.block_m;
  const std::int64_t groups = (problem.n + kDrained - 1) / kDrained;
  const LaunchShape shape{.grid = static_cast<unsigned>((problem.m * groups + kThreads - 1) / kThreads),
                          .block = kThreads,
                          .programmatic = context.device->compute_capability >= 90};
  return launch_kernel("gemm_sm80_add_parts", gemm_sm80_add_parts<T>, shape, context.stream, partials, problem.m,
                       part_rows * stride, stride, plan.splits, Epilogue<T>(problem, tensors));
}

template <Layout kLayout>
Status launch_layout(const Problem& problem, DType dtype, const Tensors& tensors, const Sm80Plan& plan, float* partials,
                     const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) -> Status {
    const Status status = product::with_sm80_tile(plan.tile, [&]<Sm80Tile tile>() {
      return launch_tile<T, tile, kLayout>(problem, tensors, plan, partials, context);
    });
    if (kLayout == Layout::tn || !status.ok() || plan.splits == 1) return status;  // tn: whoever calls adds them
    return launch_add_parts<T>(problem, tensors, plan, partials, context);
  });
}

}  // namespace
}  // namespace noisefloor::gemm
