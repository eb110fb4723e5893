// The mainloop of the sm_80 variants: a pipeline of asynchronous copies that feeds mma.sync m16n8k16. Device code only.
#pragma once

#include "kernels/core/status.h"
#include "kernels/product/mma_tile.cuh"
#include "kernels/product/sm80_plan.h"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::product {

// How the warps of a block divide each tile: 64x64 of sums a warp in the tall one; in the low and the flat one 2 and 4
// warps share every step's k.
struct WarpGrid {
  int m, n, k;
};
constexpr WarpGrid warps_of(Sm80Tile tile) {
  if (tile == Sm80Tile::tall_256x128) return {4, 2, 1};
  if (tile == Sm80Tile::low_32x64) return {1, 2, 2};
  if (tile == Sm80Tile::flat_16x32) return {1, 1, 4};
  return {2, 2, 1};
}

template <Sm80Tile tile>
using Sm80MmaTile = MmaTile<shape_of(tile).block_m, shape_of(tile).block_n, shape_of(tile).block_k, warps_of(tile).m,
                            warps_of(tile).n, warps_of(tile).k, shape_of(tile).stages>;

// Calls run.operator()<tile>(); returns what it returns.
template <class Run>
Status with_sm80_tile(Sm80Tile tile, const Run& run) {
  switch (tile) {
    case Sm80Tile::tall_256x128:
      return run.template operator()<Sm80Tile::tall_256x128>();
    case Sm80Tile::medium_128x64:
      return run.template operator()<Sm80Tile::medium_128x64>();
    case Sm80Tile::small_64x64:
      return run.template operator()<Sm80Tile::small_64x64>();
    case Sm80Tile::low_32x64:
      return run.template operator()<Sm80Tile::low_32x64>();
    case Sm80Tile::flat_16x32:
      return run.template operator()<Sm80Tile::flat_16x32>();
  }
  return failure(StatusCode::invalid_argument, "no such tile");
}

// Block number -> tile: down a group of kSm80GroupM tile rows, then right, so that the blocks in flight share A and B
// in L2.
inline constexpr int kSm80GroupM = 8;
template <class Grid>
__device__ __forceinline__ void tile_coordinate(const Grid& grid, unsigned tile, unsigned& tile_m, unsigned& tile_n) {
  const unsigned per_group = kSm80GroupM * grid.tiles_n;
  const unsigned first = tile / per_group * kSm80GroupM;
  const unsigned height = min(kSm80GroupM, grid.tiles_m - first);
  tile_m = first + tile % per_group % height;
  tile_n = tile % per_group / height;
}

// sums += the products of a warp's fragments of one k16 step.
template <class T, class Tile>
__device__ __forceinline__ void multiply_fragments(const Fragments<Tile>& fragments, Sums<Tile>& sums) {
#pragma unroll
  for (int i = 0; i < Tile::kFragmentsM; ++i)
#pragma unroll
    for (int j = 0; j < Tile::kFragmentsN; ++j)
      ptx::mma_m16n8k16<T>(sums[i][j], fragments.a[i], fragments.b[j][0], fragments.b[j][1]);
}

struct NoOtherProducts {
  template <class Fragments>
  __device__ __forceinline__ void operator()(const Fragments&) const {}
};

// sums += the products of `steps` steps of k. loader.issue(stage) copies the next one to the shared address of a stage.
// Behind it every copy has arrived, but not everybody has read the last stage. others(fragments) may take more products
// of each k16 step.
template <class T, class Tile, class Loader, class Others = NoOtherProducts>
__device__ __forceinline__ void multiply_steps(Loader& loader, std::uint32_t stages, int steps, Sums<Tile>& sums,
                                               const Others& others = {}) {
  const WarpCoordinate warp = warp_coordinate<Tile>();
  Fragments<Tile> fragments[2];  // the next k16 step is read from shared memory while this one is multiplied

#pragma unroll
  for (int s = 0; s < Tile::kStages - 1; ++s) {
    if (s < steps) loader.issue(stages + s * Tile::kStageBytes);
    ptx::cp_async_commit();  // also an empty group, so that counts stay simple
  }
  ptx::cp_async_wait<Tile::kStages - 2>();
  __syncthreads();
  const auto load_fragments = [&](Fragments<Tile>& into, int stage, int k16) {
    const std::uint32_t a_tile = stages + stage * Tile::kStageBytes;
    into.load(a_tile, a_tile + Tile::kBlockM * Tile::kBlockK * 2, warp, warp.k * Tile::kStepsK + k16);
  };
  load_fragments(fragments[0], 0, 0);
  int read_stage = 0, write_stage = Tile::kStages - 1;
  static_assert(Tile::kStepsK % 2 == 0, "the fragment buffers alternate through a step");
  for (int step = 0; step < steps; ++step) {
#pragma unroll
    for (int i = 0; i < Tile::kStepsK; ++i) {
      if (i == Tile::kStepsK - 1) {  // on to the next stage, once it has arrived for everyone
        ptx::cp_async_wait<Tile::kStages - 2>();
        __syncthreads();
        read_stage = read_stage + 1 == Tile::kStages ? 0 : read_stage + 1;
      }
      load_fragments(fragments[(i + 1) % 2], read_stage, (i + 1) % Tile::kStepsK);
      if (i == 0) {  // the stage that everyone left at the last barrier
        if (step + Tile::kStages - 1 < steps) loader.issue(stages + write_stage * Tile::kStageBytes);
        ptx::cp_async_commit();
        write_stage = write_stage + 1 == Tile::kStages ? 0 : write_stage + 1;
      }
      multiply_fragments<T, Tile>(fragments[i % 2], sums);
      others(fragments[i % 2]);
    }
  }
  ptx::cp_async_wait<0>();
}

// For drain_sums: fp32 sums, as they are.
struct ToPartials {
  float* corner;
  std::int64_t stride;

  __device__ __forceinline__ int prefetch(int) const { return 0; }
  __device__ __forceinline__ void take(int row, const float (&sums)[kDrained], const float (&)[kDrained], int) const {
    *reinterpret_cast<float4*>(corner + row * stride) = make_float4(sums[0], sums[1], sums[2], sums[3]);
  }
};

// Or times a factor, where they lie in a matrix of `stride` columns.
struct ToFp32 {
  float* corner;
  int rows, columns, stride;  // rows and columns that there are from the corner on
  float factor;

  __device__ __forceinline__ int prefetch(int) const { return 0; }
  __device__ __forceinline__ void take(int row, const float (&sums)[kDrained], const float (&)[kDrained], int) const {
    if (row >= rows) return;
    float* const to = corner + std::int64_t{row} * stride;
    if (stride % kDrained == 0 && columns >= kDrained) {
      *reinterpret_cast<float4*>(to) =
          make_float4(factor * sums[0], factor * sums[1], factor * sums[2], factor * sums[3]);
    } else {
#pragma unroll
      for (int i = 0; i < kDrained; ++i)
        if (i < columns) to[i] = factor * sums[i];
    }
  }
};

}  // namespace noisefloor::product
