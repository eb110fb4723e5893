// The device code of ptx_sm90a_grid; ptx_grid_sm90a.cu says what it does and why.
#pragma once

#include "kernels/groupnorm/grid.cuh"
#include "kernels/groupnorm_backward/cluster.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

// Of each block and channel `parts` has the sums of dv and dv (x - mean), and `results` those of all, times gamma (1 +
// scale).
struct GridArguments : groupnorm::GridArguments, GradientArguments {};

struct RowPair {
  uint4 x, dy;
};

// The sums of a channel's words over the blocks of a team; by a whole warp, to all lanes.
__device__ __forceinline__ float2 add_team(const GridArguments& a, const std::uint64_t* parts, int lane) {
  float2 sum{0, 0};
#pragma unroll 1
  for (int base = lane; base < a.ranks; base += groupnorm::kWarp * groupnorm::kPolled) {
    std::uint64_t word[groupnorm::kPolled];
#pragma unroll
    for (int i = 0; i < groupnorm::kPolled; ++i)
      word[i] = ptx::load_relaxed(parts + min(base + groupnorm::kWarp * i, a.ranks - 1));
#pragma unroll
    for (int i = 0; i < groupnorm::kPolled; ++i) {
      const int rank = base + groupnorm::kWarp * i;
      if (rank >= a.ranks) continue;
      sum += groupnorm::await(parts + rank, word[i]);
    }
  }
  return lane_sum(sum);
}

// Of a unit, the first rows of x and dy are in shared memory, as many as have room, fetched while dx of the unit before
// was written; the others come from memory in each pass. 1. dv and dv x are summed; a channel is merged by a warp of
// one block, which writes its gradients, and all blocks wait for all channels. 2. dx, from the last row on: L2 still
// has what 1 read last.
template <class T, bool kActivate, class A>
__global__ void __launch_bounds__(groupnorm::kGridThreads, 1) grid_kernel(const __grid_constant__ GridArguments a) {
  constexpr int kPairs = 3;  // of rows under way
  extern __shared__ __align__(16) char storage[];
  const groupnorm::StripePlan& plan = a.plan;
  const int pitch = plan.columns * 16, channels = plan.columns * 8;
  char* const dy_tile = storage + plan.shared_rows * pitch;
  auto* const pairs = reinterpret_cast<float2*>(dy_tile + plan.shared_rows * pitch);  // as the cluster's
  float2 *const finals = pairs + a.pairs, *const terms = finals + plan.bundle, *const sums = terms + plan.bundle;
  const int team = static_cast<int>(blockIdx.x) % a.teams, rank = static_cast<int>(blockIdx.x) / a.teams;
  const int rows = groupnorm::rows_of(a, rank), thread = groupnorm::linear_thread();
  const int threads = static_cast<int>(blockDim.x * blockDim.y), lane = thread % groupnorm::kWarp;
  const int first = static_cast<int>(threadIdx.y), column = static_cast<int>(threadIdx.x);
  const int step = plan.tile_rows * a.channels, tile_step = plan.tile_rows * pitch;
  const int tile_offset = first * pitch + column * 16;
  const auto rows_among = [&](int of) { return static_cast<int>(groupnorm::RowShare(a, min(rows, of)).of(first)); };
  const int own = rows_among(rows), held = rows_among(plan.shared_rows);
  const auto image_of = [&](int unit) { return groupnorm::divide(unit, a.bundles_inverse); };
  const auto channel_of = [&](int unit) { return (unit - image_of(unit) * a.bundles) * channels + column * 8; };
  const auto offset_of = [&](int unit) {
    return (static_cast<std::int64_t>(image_of(unit)) * a.hw + rank * plan.rows + first) * a.channels +
           channel_of(unit);
  };
  const auto fetch = [&](std::int64_t offset, int k) {
    const auto copy = [&](const void* from, char* tile) {
      ptx::cp_async_16_alone(ptx::shared_address(tile + tile_offset + k * tile_step),
                             static_cast<const T*>(from) + offset + static_cast<std::int64_t>(k) * step);
    };
    copy(a.t.x, storage);
    copy(a.dy, dy_tile);
  };

  for (int unit = team; unit < a.units; unit += a.teams)  // as in kernels/groupnorm
    for (int j = thread; j < channels; j += threads) {
      const std::int64_t at = static_cast<std::int64_t>(unit) * channels + j;
      ptx::store_relaxed(a.parts + at * a.ranks + rank, groupnorm::kUnset);
      if (rank == 0) ptx::store_relaxed(a.results + at, groupnorm::kUnset);
    }
  auto cleared = cooperative_groups::this_grid().barrier_arrive();
  groupnorm::wait_staggered(team, a.stagger_cycles);
  for (int k = 0; k < held; ++k) fetch(offset_of(team), k);
  ptx::cp_async_commit();
  cooperative_groups::this_grid().barrier_wait(std::move(cleared));

#pragma unroll 1
  for (int unit = team; unit < a.units; unit += a.teams) {
    const int image = image_of(unit), channel = channel_of(unit);
    const std::int64_t offset = offset_of(unit);
    const auto pair_of = [&](int k) {
      const std::int64_t at = offset + static_cast<std::int64_t>(k) * step;
      return RowPair{load_16_bytes(static_cast<const T*>(a.t.x) + at), load_16_bytes(static_cast<const T*>(a.dy) + at)};
    };
    const auto held_pair = [&](int k) {
      const int at = tile_offset + k * tile_step;
      return RowPair{*reinterpret_cast<const uint4*>(storage + at), *reinterpret_cast<const uint4*>(dy_tile + at)};
    };
    for (int j = thread; j < plan.bundle; j += threads)
      finals[j] = {a.mean[unit * plan.bundle + j], a.rstd[unit * plan.bundle + j]};
    const auto parameters = groupnorm::load_parameters<T, A>(a.t, channel, image * a.scale_shift_stride + channel);
    __syncthreads();

    float ca[8], cb[8];
    groupnorm::fold_coefficients<T, kActivate>(a, parameters, column, finals, ca, cb);
    std::uint64_t* const parts = a.parts + static_cast<std::int64_t>(unit) * channels * a.ranks;
    std::uint64_t* const totals = a.results + static_cast<std::int64_t>(unit) * channels;
    {
      float sum[8] = {}, sum_x[8] = {};
      const auto add = [&](int, const RowPair& row) { add_row<T, kActivate>(row.x, row.dy, ca, cb, sum, sum_x); };
      groupnorm::each_ahead<kPairs>(
          own - held, [&](int k) { return pair_of(held + k); }, add);
      ptx::cp_async_wait<0>();
#pragma unroll 2
      for (int k = 0; k < held; ++k) add(k, held_pair(k));
      add_channels<kActivate>(a, pairs, finals, sum, sum_x,
                              [&](int c, float2 total) { groupnorm::publish(parts + c * a.ranks + rank, total); });
    }
    if (thread < plan.threads) {
      const int warps = plan.threads / groupnorm::kWarp, begin = (unit - image * a.bundles) * channels;
#pragma unroll 1
      for (int c = rank + thread / groupnorm::kWarp * a.ranks; c < channels; c += warps * a.ranks) {
        const float2 all = add_team(a, parts + c * a.ranks, lane);
        if (lane > 0) continue;
        store_sums<T>(a.gradients, image, begin + c, all.x, all.y * finals[groupnorm::divide(c, a.width_inverse)].y,
                      a.sums);
        const float factor = parameter<A>(a.t.gamma, begin + c, 1.0f) *
                             (1.0f + parameter<T>(a.t.scale, image * a.scale_shift_stride + begin + c, 0.0f));
        groupnorm::publish(totals + c, {factor * all.x, factor * all.y});
      }
    }
    for (int c = thread; c < channels; c += threads)
      sums[c] = groupnorm::await(totals + c, ptx::load_relaxed(totals + c));
    __syncthreads();
    each_group(plan, [&](int j, bool valid) {
      float2 all{0, 0};
      for (int c = thread % groupnorm::kTeam; c < a.width; c += groupnorm::kTeam) all += sums[j * a.width + c];
      all = {lane_sum<groupnorm::kTeam>(all.x), lane_sum<groupnorm::kTeam>(all.y)};
      if (valid && thread % groupnorm::kTeam == 0) terms[j] = terms_of(a, finals[j], all);
    });
    __syncthreads();

    float of_x[8], rest[8];
    of_channels(a, column, terms, of_x, rest);
    const bool more = unit + a.teams < a.units;
    const std::int64_t next = more ? offset_of(unit + a.teams) : 0;
    const auto at = [&](int k) { return offset + static_cast<std::int64_t>(k) * step; };
    const auto ask_residual = [&](int k) {
      if (a.residual != nullptr) ptx::prefetch_l2(static_cast<const T*>(a.residual) + at(k));
    };
    const auto write = [&](int k, const RowPair& row) {
      write_row<T, kActivate>(a, load_residual<T>(a, at(k)), row.x, row.dy, at(k), ca, cb, of_x, rest);
    };
    groupnorm::each_ahead<kPairs>(
        own - held,
        [&](int i) {
          ask_residual(own - 1 - i);
          return pair_of(own - 1 - i);
        },
        [&](int i, const RowPair& row) { write(own - 1 - i, row); });
#pragma unroll 2
    for (int k = held - 1; k >= 0; --k) {
      const RowPair row = held_pair(k);
      if (more) fetch(next, k);
      write(k, row);
    }
    ptx::cp_async_commit();
  }
}

}  // namespace
}  // namespace noisefloor::groupnorm_backward
