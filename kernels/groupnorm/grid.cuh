// The device code of ptx_sm90a_grid; ptx_grid_sm90a.cu says what it does and why.
#pragma once

#include <cooperative_groups.h>

#include <utility>

#include "kernels/groupnorm/grid_plan.h"
#include "kernels/groupnorm/stripe.cuh"
#include "kernels/ptx/relaxed.cuh"
#include "kernels/ptx/shared.cuh"

namespace noisefloor::groupnorm {
namespace {

struct GridArguments : StripeArguments {
  int ranks;               // blocks of a team
  int teams;               // team t has the units t, t + teams, ...
  int units;               // image-bundle pairs
  float stagger_cycles;    // between the starts of two teams
  std::uint64_t* parts;    // [units][bundle][ranks]: mean and M2 of each block's rows, kUnset until they are there
  std::uint64_t* results;  // [units][bundle]: mean and rstd, kUnset until they are there
};

constexpr std::uint64_t kUnset = ~std::uint64_t{0};
constexpr std::uint64_t kNaN = 0x7fffffff7fffffff;  // two NaNs that are not kUnset
constexpr int kPolled = 4;                          // words that a lane asks for at once: 128 blocks by a warp
constexpr int kWarp = 32;
constexpr int kStreamed = 6;  // rows that a thread asks for while it works on as many: 48 KiB an SM under way

// Two floats in one word that is written and read whole, so that its arrival says that it is valid: no fence, no flag.
__device__ __forceinline__ void publish(std::uint64_t* place, float2 pair) {
  auto word = static_cast<std::uint64_t>(__float_as_uint(pair.y)) << 32 | __float_as_uint(pair.x);
  if (word == kUnset) word = kNaN;
  ptx::store_relaxed(place, word);
}
__device__ __forceinline__ float2 pair_of(std::uint64_t word) {
  return {__uint_as_float(static_cast<unsigned>(word)), __uint_as_float(static_cast<unsigned>(word >> 32))};
}
// `word` is what was read there last.
__device__ __forceinline__ float2 await(const std::uint64_t* place, std::uint64_t word) {
  while (word == kUnset) word = ptx::load_relaxed(place);
  return pair_of(word);
}

// Mean and rstd of a group by Chan's formula over the blocks of a team, about the first one's mean; by a whole warp, to
// all lanes.
__device__ __forceinline__ float2 merge_team(const GridArguments& a, const std::uint64_t* parts, int lane) {
  float sum = 0, squares = 0, origin = 0;
#pragma unroll 1
  for (int base = 0; base < a.ranks; base += kWarp * kPolled) {
    std::uint64_t word[kPolled];
#pragma unroll
    for (int i = 0; i < kPolled; ++i) word[i] = ptx::load_relaxed(parts + min(base + kWarp * i + lane, a.ranks - 1));
#pragma unroll
    for (int i = 0; i < kPolled; ++i) {
      const int rank = base + kWarp * i + lane;
      const float2 block = await(parts + min(rank, a.ranks - 1), word[i]);
      if (base == 0 && i == 0) origin = __shfl_sync(kAllLanes, block.x, 0);
      if (rank >= a.ranks) continue;
      const auto count = static_cast<float>(rows_of(a, rank) * a.width);
      const float delta = block.x - origin;
      sum += count * delta;
      squares += block.y + count * delta * delta;
    }
  }
  const float2 all = lane_sum(float2{sum, squares});
  const float offset = all.x * a.size_inverse;
  return mean_and_rstd(a, origin + offset, fmaxf(all.y - all.x * offset, 0.0f));
}

// Calls body(k, fetch(k)) for k from 0 to `count`, with kAhead fetches under way.
template <int kAhead, class Fetch, class Body>
__device__ __forceinline__ void each_ahead(int count, const Fetch& fetch, const Body& body) {
  decltype(fetch(0)) next[kAhead], present[kAhead];
  const auto ask = [&](int from) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (from + i < count) next[i] = fetch(from + i);
  };
  ask(0);
#pragma unroll 1
  for (int k = 0; k < count; k += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) present[i] = next[i];
    ask(k + kAhead);
#pragma unroll
    for (int i = 0; i < kAhead; ++i)
      if (k + i < count) body(k + i, present[i]);
  }
}

// Of what store_moments has left: the block's moments to its team, and what the team's come to. Between barriers of the
// block.
__device__ __forceinline__ void exchange_moments(const GridArguments& a, int unit, int rank, const RowShare& share,
                                                 int rows, const float2* sums, float2* finals) {
  const StripePlan& plan = a.plan;
  const int thread = linear_thread();
  std::uint64_t* parts = a.parts + static_cast<std::int64_t>(unit) * plan.bundle * a.ranks;
  std::uint64_t* results = a.results + static_cast<std::int64_t>(unit) * plan.bundle;
  if (thread < plan.threads) {
    const int lane_teams = plan.threads / kTeam;
#pragma unroll 1
    for (int base = 0; base < plan.bundle; base += lane_teams) {
      const int j = base + thread / kTeam;
      const float2 own = group_moments(a, sums, share, rows, min(j, plan.bundle - 1));
      if (j < plan.bundle && thread % kTeam == 0) publish(parts + j * a.ranks + rank, own);
    }
  }
  if (thread < kWarp) {
    // A group is merged by one block, for all: that all read all blocks' moments would cost more than a second hop.
    // Which block it is changes from unit to unit, since all wait for the slowest.
#pragma unroll 1
    for (int j = (rank + a.ranks - unit * plan.bundle % a.ranks) % a.ranks; j < plan.bundle; j += a.ranks) {
      const float2 total = merge_team(a, parts + j * a.ranks, thread);
      if (thread > 0) continue;
      publish(results + j, total);
      if (a.t.mean != nullptr) {
        a.t.mean[unit * plan.bundle + j] = total.x;
        a.t.rstd[unit * plan.bundle + j] = total.y;
      }
    }
    for (int j = thread; j < plan.bundle; j += kWarp) finals[j] = await(results + j, ptx::load_relaxed(results + j));
  }
}

// 1. Each block unsets the words in which it will tell its moments, and arrives at the grid's barrier. 2. It fetches
// the first kHeld rows of each thread to registers, the others to shared memory (cp.async), and waits for the
// barrier. 3. Each thread sums the rows that it has fetched itself. 4. 16 lanes per group merge them and publish the
// block's mean and M2, one word that says by itself that it is there. One warp of one block per group merges the team's
// and publishes mean and rstd, for which all blocks of the team wait. 5. Each thread writes fusion(x * a + b) row by
// row and fetches the same row of the team's next unit in its place. Then 3 again.
//
// With kHeld = 0 registers hold no rows, and a block may have more than its shared memory: those it sums last, and
// reads again to write them first, from the last on, which L2 still has.
//
// The launch is cooperative, so that waiting for each other cannot deadlock. Registers: 128, 64 of them for held rows.
template <class T, bool kActivate, int kHeld, class A>
__global__ void __launch_bounds__(kGridThreads, 1) grid_kernel(const __grid_constant__ GridArguments a) {
  extern __shared__ __align__(16) char tile[];  // [rows][columns] of 16 bytes
  const StripePlan& plan = a.plan;
  const int pitch = plan.columns * 16;
  auto* sums = reinterpret_cast<float2*>(tile + plan.shared_rows * pitch);  // [columns][entries][tile_rows | 1]
  float2* finals = sums + plan.sums();                                      // [bundle]: mean, rstd
  const int team = static_cast<int>(blockIdx.x) % a.teams;
  const int rank = static_cast<int>(blockIdx.x) / a.teams;
  const int rows = rows_of(a, rank);
  const int kept = kHeld > 0 ? rows : min(rows, plan.shared_rows);
  const int first = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(threadIdx.x);
  const int thread = linear_thread();
  const int step = plan.tile_rows * a.channels;  // elements; of 512 rows of 2^16 channels, 16 times that stay in int
  const int tile_step = plan.tile_rows * pitch;
  char* const own_tile = tile + first * pitch + column * 16;
  const int split = channels_in_first(a, column);
  const RowShare share(a, rows);
  // Of the thread's rows: where those that no block holds begin, and how many they are.
  const int first_streamed = static_cast<int>(RowShare(a, kept).of(first));
  const int streamed = static_cast<int>(share.of(first)) - first_streamed;
  const auto offset_of = [&](int unit) {
    const int image = divide(unit, a.bundles_inverse);
    const int channel = ((unit - image * a.bundles) * plan.columns + column) * 8;
    return (static_cast<std::int64_t>(image) * a.hw + rank * plan.rows + first) * a.channels + channel;
  };

  // Nobody has cleared the words: each block clears its own, and the first block of a team the results too. That all
  // have is waited for when the first rows have been asked for.
  for (int unit = team; unit < a.units; unit += a.teams) {
    for (int j = thread; j < plan.bundle; j += static_cast<int>(blockDim.x * blockDim.y)) {
      const std::int64_t group = static_cast<std::int64_t>(unit) * plan.bundle + j;
      ptx::store_relaxed(a.parts + group * a.ranks + rank, kUnset);
      if (rank == 0) ptx::store_relaxed(a.results + group, kUnset);
    }
  }
  auto cleared = cooperative_groups::this_grid().barrier_arrive();
  wait_staggered(team, a.stagger_cycles);

  // The thread's first kHeld rows travel to registers, the others to shared memory, in stages.
  uint4 held[kHeld + 1];
  {
    const T* source = static_cast<const T*>(a.t.x) + offset_of(team);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * plan.tile_rows < rows) held[k] = load_16_bytes(source + k * step);
    }
    fetch_stages(a, source + kHeld * step, step, ptx::shared_address(own_tile), tile_step,
                 first + kHeld * plan.tile_rows, kept);
  }
  cooperative_groups::this_grid().barrier_wait(std::move(cleared));

#pragma unroll 1
  for (int unit = team; unit < a.units; unit += a.teams) {
    ChannelSums seen{};
    if (kHeld > 0 && first < rows) start_sums<T>(a, seen, held[0], split);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * plan.tile_rows < rows) add_row<T>(seen, held[k]);
    }
    {
      const char* source = own_tile;
      int r = first + kHeld * plan.tile_rows;
#pragma unroll 1
      for (int later = a.stages - 1; later >= 0; --later) {
        wait_groups(later);
        if (kHeld == 0 && later == a.stages - 1 && first < rows)
          start_sums<T>(a, seen, *reinterpret_cast<const uint4*>(source), split);
#pragma unroll 2
        for (int k = 0; k < a.stage_accesses && r < kept; ++k, r += plan.tile_rows) {
          add_row<T>(seen, *reinterpret_cast<const uint4*>(source));
          source += tile_step;
        }
      }
    }
    const std::int64_t begin = offset_of(unit) + static_cast<std::int64_t>(first_streamed) * step;
    const auto streamed_at = [&](int k) { return begin + static_cast<std::int64_t>(k) * step; };
    const auto streamed_row = [&](int k) { return load_16_bytes(static_cast<const T*>(a.t.x) + streamed_at(k)); };
    if constexpr (kHeld == 0)
      each_ahead<kStreamed>(streamed, streamed_row, [&](int, const uint4& row) { add_row<T>(seen, row); });
    const int image = divide(unit, a.bundles_inverse);
    const int channel = ((unit - image * a.bundles) * plan.columns + column) * 8;
    store_moments(a, seen, share.of(first), split, sums);
    const auto parameters = load_parameters<T, A>(a.t, channel, image * a.scale_shift_stride + channel);
    __syncthreads();
    exchange_moments(a, unit, rank, share, rows, sums, finals);
    __syncthreads();
    float ca[8], cb[8];
    fold_coefficients<T, kActivate>(a, parameters, column, finals, ca, cb);

    if constexpr (kHeld == 0)
      each_ahead<kStreamed>(
          streamed, [&](int k) { return streamed_row(streamed - 1 - k); },
          [&](int k, const uint4& row) {
            write_row<T, kActivate>(static_cast<T*>(a.t.y) + streamed_at(streamed - 1 - k), row, ca, cb);
          });

    // What is written makes room for the team's next unit: a thread touches only what it has fetched itself, so this
    // needs no barrier. (A thread's accesses of shared memory are carried out in the order of issue; a copy writes its
    // slot when the row has come from memory, long after the read before it.)
    T* destination = static_cast<T*>(a.t.y) + offset_of(unit);
    const bool more = unit + a.teams < a.units;
    const T* source = static_cast<const T*>(a.t.x) + (more ? offset_of(unit + a.teams) : 0);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * plan.tile_rows < rows) {
        write_row<T, kActivate>(destination, held[k], ca, cb);
        if (more) held[k] = load_16_bytes(source);
        destination += step;
        source += step;
      }
    }
    char* place = own_tile;
    int r = first + kHeld * plan.tile_rows;
#pragma unroll 1
    for (int stage = 0; stage < a.stages; ++stage) {
#pragma unroll 2
      for (int k = 0; k < a.stage_accesses && r < kept; ++k, r += plan.tile_rows) {
        write_row<T, kActivate>(destination, *reinterpret_cast<const uint4*>(place), ca, cb);
        if (more) ptx::cp_async_16_alone(ptx::shared_address(place), source);
        destination += step;
        source += step;
        place += tile_step;
      }
      ptx::cp_async_commit();
    }
  }
}

}  // namespace
}  // namespace noisefloor::groupnorm
