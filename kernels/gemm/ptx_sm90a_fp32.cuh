// The consumers of ptx_sm90a for layout tn: sums of products go to an fp32 D as they are, and those of A's rows beside
// them. A row's sum is its product with ones: a step's A stays where it is and is multiplied once more, by 8 columns of
// them. Device code only.
#pragma once

#include <cstdint>

#include "kernels/device/vector.cuh"
#include "kernels/gemm/ptx_sm90a_layout.cuh"
#include "kernels/gemm/ptx_sm90a_partials.cuh"
#include "kernels/product/sm90a_consumer.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/shared.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::gemm {

// Of a tile's partial sums, behind its own columns: where rows are padded (kPartialStride).
inline constexpr int kRowSumColumns = 8;

// A step's products beside the tile's.
template <class T>
struct RowSums {
  std::uint64_t ones;
  float (&sums)[4];

  __device__ __forceinline__ void operator()(std::uint32_t a, bool accumulate) const {
#pragma unroll
    for (int i = 0; i < product::kBlockK / 16; ++i)
      ptx::Wgmma<T, kRowSumColumns, false, true>::run(sums, product::descriptor<64>(a, i), ones, accumulate || i > 0);
  }
};

// Writes 16 x 8 ones; by the threads of the consumers, which meet behind it.
template <class T>
__device__ __forceinline__ std::uint64_t write_ones(std::uint32_t at) {
  constexpr int kWords = 16 * kRowSumColumns / 2;
  if (threadIdx.x < kWords) ptx::store_shared(at + 4 * threadIdx.x, pack_pair<T>(1, 1));
  ptx::fence_proxy_async_shared();
  return ptx::wgmma_descriptor_unswizzled(at);
}

struct ToFp32 {
  float scale;
  float *d, *row_sums;  // row_sums: null: none of this tile

  // Of 64 rows from `row0` on, from registers: a quad of lanes writes 32 bytes.
  template <int kCount>
  __device__ __forceinline__ void store(const float (&acc)[kCount], const float (&sums)[4], const TilePosition& at,
                                        std::int64_t row0) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const std::int64_t first = row0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = first + 8 * half;
      if (row >= at.rows) break;
      float* const to = d + row * at.columns + at.column0 + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kCount / 4; ++i) {
        if (at.column0 + 8 * i >= at.columns) break;
        *reinterpret_cast<float2*>(to + 8 * i) =
            make_float2(scale * acc[4 * i + 2 * half], scale * acc[4 * i + 2 * half + 1]);
      }
      if (row_sums && lane % 4 == 0) row_sums[row] = scale * sums[2 * half];
    }
  }
  // Of this block's share of a split tile, 4 columns at a time; the last 4 are the rows' sums.
  template <int kBlockM, int kBlockN>
  __device__ __forceinline__ void reduce(const product::Partials& partials, int share, const TilePosition& at) const {
    constexpr int kRuns = kBlockN / 4 + 1;
    const int rows = kBlockM / partials.splits;
    for (int item = static_cast<int>(threadIdx.x); item < rows * kRuns; item += 2 * kBlockM) {
      const int column = item % kRuns * 4;
      const std::int64_t row = at.row0 + share * rows + item / kRuns;
      const bool is_sum = column == kBlockN;
      if (row >= at.rows || (is_sum ? row_sums == nullptr : at.column0 + column >= at.columns)) continue;
      const float* from = partials.dsmem + item / kRuns * kPartialStride<kBlockN> + column;
      float4 sum{};
      for (int s = 0; s < partials.splits; ++s, from += partials.floats) {
        const float4 part = *reinterpret_cast<const float4*>(from);
        sum.x += part.x, sum.y += part.y, sum.z += part.z, sum.w += part.w;
      }
      sum.x *= scale, sum.y *= scale, sum.z *= scale, sum.w *= scale;
      if (is_sum)
        row_sums[row] = sum.x;
      else
        *reinterpret_cast<float4*>(d + row * at.columns + at.column0 + column) = sum;
    }
  }
};

template <class T, int kTile, int kConsumers>
__device__ __forceinline__ void consume_to_fp32(const WarpRole<kConsumers>& role, const Barriers& barriers,
                                                const GradientArguments<T>& args, std::uint32_t base,
                                                const std::uint8_t* shared, int part, int first_tile, int steps) {
  using L = BlockLayout<kTile>;
  constexpr int kBlockM = L::kShape.block_m(), kBlockN = L::kShape.block_n;
  static_assert(!L::kShape.pingpong);
  // Where other layouts stage their stores.
  const std::uint64_t ones = write_ones<T>(base + args.stages * L::kStageBytes);
  ptx::named_barrier_sync(1, kConsumers * 128);
  product::wait_for_launches();
  ptx::Ring ring;
  float* const d = reinterpret_cast<float*>(args.d) + std::int64_t{part} * args.m * args.n;
  float* const row_sums = args.row_sums ? args.row_sums + std::int64_t{part} * args.m : nullptr;
  for (int tile = first_tile; tile < args.order.tiles(); tile += role.tile_stride()) {
    const TileIndex index = args.order.locate(tile);
    const int column0 = (index.n_tile * args.multicast_a + role.n_rank) * kBlockN;
    const TilePosition at{
        (std::int64_t{index.m_cluster} * args.multicast + role.m_rank) * kBlockM, args.m, column0, args.n, 0, column0};
    const ToFp32 way{args.epilogue.scale, d, column0 == 0 ? row_sums : nullptr};
    float acc[1][kBlockN / 2], sums[4] = {};
    const auto multiply = [&](const auto& beside) {
      product::multiply_tile<T, kBlockN, L::kStageBytes, L::kABytes, false, majors_of(Layout::tn, L::kShape)>(
          role, barriers, base, ring, args.stages, steps, L::kCanSplit ? args.dsmem.opens : -1, true, true, acc,
          beside);
    };
    if (way.row_sums)
      multiply(RowSums<T>{ones, sums});
    else
      multiply(product::NothingBeside());
#pragma unroll
    for (float& sum : sums) ptx::wgmma_pin(sum);
    if (args.splits == 1) {
      way.store(acc[0], sums, at, at.row0 + role.consumer * 64);
    } else if constexpr (L::kCanSplit) {
      const int dsmem = args.dsmem.stage * L::kStageBytes;
      product::await_dsmem(args.dsmem.opens, steps);
      send_partial<kBlockM, kBlockN>(role, barriers, acc[0], base + dsmem);
      send_partial<kBlockM, kBlockN>(role, barriers, sums, base + dsmem + kBlockN * 4);
      ptx::named_barrier_sync(1, kConsumers * 128);  // this block's own sums are there
      product::await_sums(barriers);
      const product::Partials partials{reinterpret_cast<const float*>(shared + dsmem), args.splits,
                                       kDsmemBytes<kBlockM, kBlockN> / 4 / args.splits};
      way.template reduce<kBlockM, kBlockN>(partials, role.split, at);
    }
  }
}

}  // namespace noisefloor::gemm
