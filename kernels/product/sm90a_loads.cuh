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

// A step's kRows rows of A at `to`; neighbours in n bring an equal part each to all of them. kShares: whether there may
// be neighbours; without any, what their parts take is not worked out before the first load.
template <int kRows, bool kShares, int kConsumers>
__device__ __forceinline__ void load_a(const WarpRole<kConsumers>& role, const CUtensorMap* map, std::uint32_t to,
                                       std::uint32_t barrier, int column, int row) {
  if (kShares && role.multicast_a > 1) {
    const int first = role.n_rank * (kRows >> log2_of(role.multicast_a));
    ptx::tma_load_2d_multicast(to + first * kRowBytes, map, barrier, column, row + first, role.multicast_mask_a());
  } else {
    ptx::tma_load_2d(to, map, barrier, column, row);
  }
}

// A step's rows of B, two halves of kHalf rows at `to`, the second `second_half` rows of the tensor behind the first;
// their map's boxes have b_box_rows (sm90a_schedule.h). Neighbours in m bring an equal part each to all of them.
template <int kHalf, bool kShares, int kConsumers>
__device__ __forceinline__ void load_b(const WarpRole<kConsumers>& role, const CUtensorMap* map, std::uint32_t to,
                                       std::uint32_t barrier, int column, int row, int second_half = kHalf) {
  if (kShares && role.multicast > 1) {
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
