// What the producer's warp of a ptx_sm90a product loads at a step. Device code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/product/sharing.h"
#include "kernels/product/sm90a_mainloop.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::product {

// A step's kBoxes boxes of kColumns columns (Majors) of a matrix whose rows are k, at `to`. Of `sharing` neighbours,
// those of `blocks`, number `rank` brings an equal part of the rows, which its map's boxes have, to all of them.
template <int kBoxes, bool kShares, int kColumns = 64>
__device__ __forceinline__ void load_columns(int sharing, int rank, std::uint16_t blocks, const CUtensorMap* map,
                                             std::uint32_t to, std::uint32_t barrier, int column, int k) {
  const bool shares = kShares && sharing > 1;
  const int first = shares ? rank * (kBlockK >> log2_of(sharing)) : 0;
#pragma unroll
  for (int box = 0; box < kBoxes; ++box) {
    const std::uint32_t at = to + box * box_bytes(kColumns) + first * kColumns * 2;
    if (shares)
      ptx::tma_load_2d_multicast(at, map, barrier, column + kColumns * box, k + first, blocks);
    else
      ptx::tma_load_2d(at, map, barrier, column + kColumns * box, k);
  }
}

// A step's kRows rows of A at `to`; neighbours in n bring an equal part each to all of them. kShares: whether there may
// be neighbours; without any, what their parts take is not worked out before the first load.
// kColumns: they are columns of the matrix (`column` is always the step's first k).
template <int kRows, bool kShares, bool kColumns = false, int kConsumers>
__device__ __forceinline__ void load_a(const WarpRole<kConsumers>& role, const CUtensorMap* map, std::uint32_t to,
                                       std::uint32_t barrier, int column, int row) {
  if constexpr (kColumns) {
    load_columns<kRows / 64, kShares>(role.multicast_a, role.n_rank, role.multicast_mask_a(), map, to, barrier, row,
                                      column);
  } else if (kShares && role.multicast_a > 1) {
    const int first = role.n_rank * (kRows >> log2_of(role.multicast_a));
    ptx::tma_load_2d_multicast(to + first * kRowBytes, map, barrier, column, row + first, role.multicast_mask_a());
  } else {
    ptx::tma_load_2d(to, map, barrier, column, row);
  }
}

// A step's rows of B, two halves of kHalf rows at `to`, the second `second_half` rows of the tensor behind the first;
// their map's boxes have b_box_rows (sm90a_schedule.h). Neighbours in m bring an equal part each to all of them.
// kColumns: as of A in boxes of so many, with the halves side by side; 0: not so.
template <int kHalf, bool kShares, int kColumns = 0, int kConsumers>
__device__ __forceinline__ void load_b(const WarpRole<kConsumers>& role, const CUtensorMap* map, std::uint32_t to,
                                       std::uint32_t barrier, int column, int row, int second_half = kHalf) {
  if constexpr (kColumns > 0) {
    load_columns<2 * kHalf / kColumns, kShares, kColumns>(role.multicast, role.m_rank, role.multicast_mask_b(), map, to,
                                                          barrier, row, column);
  } else if (kShares && role.multicast > 1) {
    const int first = role.m_rank * (2 * kHalf >> log2_of(role.multicast));
    const int behind = first < kHalf ? first : first - kHalf + second_half;
    ptx::tma_load_2d_multicast(to + first * kRowBytes, map, barrier, column, row + behind, role.multicast_mask_b());
  } else {
    ptx::tma_load_2d(to, map, barrier, column, row);
    if (second_half != kHalf) ptx::tma_load_2d(to + kHalf * kRowBytes, map, barrier, column, row + second_half);
  }
}

// load(std::bool_constant): whether blocks share, as the loads above take it.
template <int kConsumers, class Load>
__device__ __forceinline__ void with_sharing(const WarpRole<kConsumers>& role, const Load& load) {
  if (role.sharing > 1)
    load(std::true_type());
  else
    load(std::false_type());
}

// The first `early` stages' weights, ahead of the wait for the launches before (early_stages): load(stage, barrier) by
// an elected thread, next() by all of the warp. A stage takes stage_bytes, with what is loaded behind that wait.
template <class Load, class Next>
__device__ __forceinline__ void load_early(const Barriers& barriers, int early, std::uint32_t stage_bytes,
                                           const Load& load, const Next& next) {
#pragma unroll 1
  for (int stage = 0; stage < early; ++stage, next())
    if (ptx::elect_one()) {
      const std::uint32_t barrier = barriers.full + stage * 8;
      ptx::mbarrier_arrive_expect_tx(barrier, stage_bytes);
      load(stage, barrier);
    }
}

}  // namespace noisefloor::product
