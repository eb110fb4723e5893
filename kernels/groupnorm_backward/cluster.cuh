// The device code of ptx_sm90a; ptx_sm90a.cu says what it does and why.
#pragma once

#include "kernels/groupnorm/stripe.cuh"
#include "kernels/groupnorm_backward/cluster_plan.h"
#include "kernels/groupnorm_backward/device.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/prefetch.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

struct GradientArguments {
  const void *dy, *residual;
  const float *mean, *rstd;
  void* dx;
  float residual_scale;
  float* sums;  // [n, 2, channels]
  NormGradients gradients;
  int pairs, kept_rows, lanes;  // of the plan
};

struct ClusterArguments : groupnorm::StripeArguments, GradientArguments {
  int owned;             // of the plan
  int units;             // image-bundle pairs; a cluster has every so many-th as there are clusters
  int staggered;         // the first so many clusters start one after another
  float stagger_cycles;  // between them
};

// What the arguments of a cluster and of a team have in common.
template <class Arguments>
void fill_arguments(const Problem& p, const Tensors& t, const ClusterPlan& plan, Arguments& a) {
  groupnorm::Tensors forward;
  forward.x = t.x, forward.gamma = t.gamma, forward.beta = t.beta, forward.scale = t.scale, forward.shift = t.shift;
  static_cast<groupnorm::StripeArguments&>(a) = groupnorm::make_stripe_arguments(forward_of(p), forward, plan);
  a.dy = t.dy, a.residual = t.residual, a.mean = t.mean, a.rstd = t.rstd, a.dx = t.dx;
  a.residual_scale = static_cast<float>(p.residual_scale);
  a.gradients = gradients_of(p, t);
  a.pairs = plan.pairs(), a.kept_rows = plan.kept_rows(), a.lanes = plan.lanes();
}

// What a block has in shared memory. Of `sums`, `parts` and `arrived` units take the first and the second in turns.
struct Shared {
  char *x, *dy;                // [rows][columns] of 16 bytes
  float2* pairs;               // sums of channels, of threads [kept rows][channels]
  float2 *finals, *terms;      // [bundle]: mean and rstd; of dx = ca dv + x terms.x + terms.y
  float2* sums;                // [2][blocks][bundle]
  float2* channels;            // [channels]: sums of dh and dh (x - mean)
  float2* parts;               // [2][blocks][owned]: of dv and dv (x - mean), by block
  float* factors;              // [channels]: gamma (1 + scale)
  std::uint32_t arrived;       // two mbarriers
  int sums_count, part_count;  // of one of the two

  __device__ __forceinline__ Shared(char* base, const ClusterArguments& a)
      : sums_count(a.plan.blocks * a.plan.bundle), part_count(a.plan.blocks * a.owned) {
    const groupnorm::StripePlan& plan = a.plan;
    const int tile = plan.shared_rows * plan.columns * 16, channels_of_block = plan.columns * 8;
    x = base;
    dy = base + tile;
    pairs = reinterpret_cast<float2*>(dy + tile);
    finals = pairs + a.pairs;
    terms = finals + plan.bundle;
    sums = terms + plan.bundle;
    channels = sums + 2 * sums_count;
    parts = channels + channels_of_block;
    factors = reinterpret_cast<float*>(parts + 2 * part_count);
    arrived = ptx::shared_address(factors + channels_of_block);
  }
};

// Calls body(j, valid) for the groups of the bundle, a team of 16 lanes each; all lanes of a warp that has one, with
// the last group where there is none.
template <class Body>
__device__ __forceinline__ void each_group(const groupnorm::StripePlan& plan, const Body& body) {
  const int thread = groupnorm::linear_thread(), teams = plan.threads / groupnorm::kTeam;
  if (thread >= plan.threads) return;
#pragma unroll 1
  for (int base = thread / 32 * 2; base < plan.bundle; base += teams) {
    const int j = base + thread / groupnorm::kTeam % 2;
    body(min(j, plan.bundle - 1), j < plan.bundle);
  }
}

// To slot `place` of block `target`, counted by its barrier.
__device__ __forceinline__ void tell(float2* place, float2 pair, int target, std::uint32_t arrived) {
  ptx::store_async(ptx::map_to_rank(ptx::shared_address(place), target), pair, ptx::map_to_rank(arrived, target));
}

// Until so many pairs of all blocks have come. The barrier's one arrival comes behind a __syncthreads: its phase cannot
// end before all bytes are announced, and racecheck sees it ordered after the initialisation. A block tells sums of a
// unit when it has had all blocks' of the one before, and each of those told its own when it was done with the unit
// before that: so nobody still reads what they overwrite, or waits for an earlier phase.
__device__ __forceinline__ void await_pairs(std::uint32_t arrived, int count, std::uint32_t parity) {
  if (groupnorm::linear_thread() == 0)
    ptx::mbarrier_arrive_expect_tx(arrived, count * static_cast<int>(sizeof(float2)));
  ptx::mbarrier_wait(arrived, parity);
}

// Of the thread's eight channels, what their groups have.
__device__ __forceinline__ void of_channels(const groupnorm::StripeArguments& a, int column, const float2* groups,
                                            float (&x)[8], float (&y)[8]) {
  groupnorm::each_channel(a, column, [&](int i, int group) {
    x[i] = groups[group].x;
    y[i] = groups[group].y;
  });
}

// Adds dv and dv x, or twice those, of eight channels of a row.
template <class T, bool kActivate>
__device__ __forceinline__ void add_row(const uint4& x_bits, const uint4& dy_bits, const float (&ca)[8],
                                        const float (&cb)[8], float (&sum)[8], float (&sum_x)[8]) {
  float x[8], dy[8];
  unpack_vector<T>(x_bits, x);
  unpack_vector<T>(dy_bits, dy);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float dv = gradient<T, kActivate>(dy[i], x[i] * ca[i] + cb[i]);
    sum[i] += dv;
    sum_x[i] += dv * x[i];
  }
}

template <class T>
__device__ __forceinline__ uint4 load_residual(const GradientArguments& a, std::int64_t at) {
  if (a.residual == nullptr) return {};
  return load_16_bytes<CacheHint::read_only>(static_cast<const T*>(a.residual) + at);
}

// dx of eight channels of a row, at element `at`.
template <class T, bool kActivate>
__device__ __forceinline__ void write_row(const GradientArguments& a, const uint4& residual_bits, const uint4& x_bits,
                                          const uint4& dy_bits, std::int64_t at, const float (&ca)[8],
                                          const float (&cb)[8], const float (&of_x)[8], const float (&rest)[8]) {
  float x[8], dy[8];
  unpack_vector<T>(x_bits, x);
  unpack_vector<T>(dy_bits, dy);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float dv = gradient<T, kActivate>(dy[i], x[i] * ca[i] + cb[i]);
    dy[i] = ca[i] * dv + (x[i] * of_x[i] + rest[i]);
  }
  if (a.residual != nullptr) {
    float residual[8];
    unpack_vector<T>(residual_bits, residual);
#pragma unroll
    for (int i = 0; i < 8; ++i) dy[i] += a.residual_scale * residual[i];
  }
  store_vector<T>(static_cast<T*>(a.dx) + at, dy);
}

// Calls leave(c, sums of dv and dv (x - mean)) for the channels of the bundle, from what add_row has left each thread.
// Of many rows half leave theirs in shared memory, for the others to add.
template <bool kActivate, class Arguments, class Leave>
__device__ __forceinline__ void add_channels(const Arguments& a, float2* pairs, const float2* finals,
                                             const float (&sum)[8], const float (&sum_x)[8], const Leave& leave) {
  const groupnorm::StripePlan& plan = a.plan;
  const int row = static_cast<int>(threadIdx.y), channels = plan.columns * 8, kept = a.kept_rows;
  float2* const place = pairs + (row < kept ? row : row - kept) * channels + threadIdx.x;
  if (row >= kept) {
#pragma unroll
    for (int i = 0; i < 8; ++i) place[i * plan.columns] = {sum[i], sum_x[i]};
  }
  if (kept < plan.tile_rows) __syncthreads();
  if (row < kept) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float2 pair{0, 0};
      if (row + kept < plan.tile_rows) pair = place[i * plan.columns];
      place[i * plan.columns] = {sum[i] + pair.x, sum_x[i] + pair.y};
    }
  }
  __syncthreads();
  const int thread = groupnorm::linear_thread(), at_once = plan.threads / a.lanes;
  if (thread >= plan.threads) return;
#pragma unroll 1
  for (int base = 0; base < channels; base += at_once) {
    const int q = base + thread / a.lanes, lane = thread % a.lanes;
    float2 total{0, 0};
    if (q < channels) {
#pragma unroll 4
      for (int r = lane; r < kept; r += a.lanes) total += pairs[r * channels + q];
    }
    for (int mask = a.lanes / 2; mask > 0; mask /= 2) {
      total.x += __shfl_xor_sync(groupnorm::kAllLanes, total.x, mask);
      total.y += __shfl_xor_sync(groupnorm::kAllLanes, total.y, mask);
    }
    if (q >= channels || lane != 0) continue;
    if constexpr (kActivate) total = {0.5f * total.x, 0.5f * total.y};
    const int c = q % plan.columns * 8 + q / plan.columns;
    total.y -= finals[groupnorm::divide(c, a.width_inverse)].x * total.x;
    leave(c, total);
  }
}

// dx = ca dv + of_x x + rest in a group of this mean and rstd, of its sums of dh and dh (x - mean).
__device__ __forceinline__ float2 terms_of(const groupnorm::StripeArguments& a, float2 final, float2 all) {
  const float of_x = -final.y * final.y * final.y * a.size_inverse * all.y;
  return {of_x, -final.y * a.size_inverse * all.x - of_x * final.x};
}

// Behind add_channels: the groups' sums to all blocks, and what they come to; the owned channels' to memory.
template <class T>
__device__ __forceinline__ void add_blocks(const ClusterArguments& a, const Shared& s, int rank, int image, int bundle,
                                           int turn, std::uint32_t parity) {
  const groupnorm::StripePlan& plan = a.plan;
  const int thread = groupnorm::linear_thread(), lane = thread % groupnorm::kTeam;
  const int owned = max(min(a.owned, plan.columns * 8 - rank * a.owned), 0);
  float2* const sums = s.sums + turn * s.sums_count;
  const float2* const parts = s.parts + turn * s.part_count;
  const std::uint32_t arrived = s.arrived + 8 * turn;
  __syncthreads();
  each_group(plan, [&](int j, bool valid) {
    float2 own{0, 0};
    for (int c = lane; c < a.width; c += groupnorm::kTeam) own += s.channels[j * a.width + c];
    own = {lane_sum<groupnorm::kTeam>(own.x), lane_sum<groupnorm::kTeam>(own.y)};
    if (!valid || lane >= plan.blocks) return;
    if (plan.blocks == 1)
      s.terms[j] = terms_of(a, s.finals[j], own);
    else
      tell(sums + rank * plan.bundle + j, own, lane, arrived);
  });
  if (plan.blocks > 1) {
    await_pairs(arrived, plan.blocks * (plan.bundle + owned), parity);
    each_group(plan, [&](int j, bool valid) {
      float2 all{0, 0};
      if (lane < plan.blocks) all = sums[lane * plan.bundle + j];
      all = {lane_sum<groupnorm::kTeam>(all.x), lane_sum<groupnorm::kTeam>(all.y)};
      if (valid && lane == 0) s.terms[j] = terms_of(a, s.finals[j], all);
    });
  }
  for (int slot = thread; slot < owned; slot += static_cast<int>(blockDim.x * blockDim.y)) {
    const int c = rank * a.owned + slot;
    float2 all{0, 0};
#pragma unroll 4
    for (int block = 0; block < plan.blocks; ++block) all += parts[block * a.owned + slot];
    store_sums<T>(a.gradients, image, bundle * plan.columns * 8 + c, all.x,
                  all.y * s.finals[groupnorm::divide(c, a.width_inverse)].y, a.sums);
  }
  __syncthreads();
}

// 1. Each thread fetches its rows of x and dy to shared memory (cp.async). 2. It sums dv and dv x of its channels, the
// first half of its rows while the others travel; the block adds its threads', tells all blocks those of its groups,
// and the channel's owner those of a channel. 3. dx = ca dv + of_x x + rest, for which dv is computed again; a row of
// the cluster's next unit takes the place of each that is done with. Then 2 again.
//
// A thread touches only rows that it has fetched itself, so that taking their place needs no barrier (its accesses of
// shared memory are carried out in the order of issue; a copy writes when the row has come from memory).
// A: of gamma and beta. Registers: 16 sums or 16 terms, 16 coefficients and 16 values; of kWideThreads four rows'.
template <class T, bool kActivate, class A, int kThreads>
__global__ void __launch_bounds__(kThreads, 2) cluster_kernel(const __grid_constant__ ClusterArguments a) {
  constexpr int kAtOnce = kThreads == kWideThreads ? 4 : 2;
  extern __shared__ __align__(16) char storage[];
  const groupnorm::StripePlan& plan = a.plan;
  const Shared s(storage, a);
  const int pitch = plan.columns * 16, rank = static_cast<int>(ptx::cluster_rank());
  const int rows = groupnorm::rows_of(a, rank);
  const int first = static_cast<int>(threadIdx.y), column = static_cast<int>(threadIdx.x);
  const int step = plan.tile_rows * a.channels;  // elements; 7264 rows, a block's most, of 2^16 channels stay in int
  const int tile_offset = first * pitch + column * 16, tile_step = plan.tile_rows * pitch;
  const auto image_of = [&](int unit) { return groupnorm::divide(unit, a.bundles_inverse); };
  const auto channel_of = [&](int unit) { return ((unit - image_of(unit) * a.bundles) * plan.columns + column) * 8; };
  const auto offset_of = [&](int unit) {
    return (static_cast<std::int64_t>(image_of(unit)) * a.hw + rank * plan.rows + first) * a.channels +
           channel_of(unit);
  };
  int unit = static_cast<int>(ptx::cluster_index());
  std::int64_t offset = offset_of(unit);

  if (plan.blocks > 1) {
    if (groupnorm::linear_thread() == 0) {
      ptx::mbarrier_init(s.arrived, 1);
      ptx::mbarrier_init(s.arrived + 8, 1);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
  ptx::griddepcontrol_wait();
  if (unit < a.staggered) groupnorm::wait_staggered(unit, a.stagger_cycles);
  const groupnorm::RowShare share(a, rows);
  const int own_rows = static_cast<int>(share.of(first));
  const auto fetch = [&](std::int64_t from, int at) {
    ptx::cp_async_16_alone(ptx::shared_address(s.x + at), static_cast<const T*>(a.t.x) + from);
    ptx::cp_async_16_alone(ptx::shared_address(s.dy + at), static_cast<const T*>(a.dy) + from);
  };
  // Calls body(at, down, ahead_of(down)) with the thread's rows from `begin` to `end`, at `at` of x's tile and dy's, so
  // many elements down from the thread's first; ahead_of some before the first body.
  const auto each_row = [&](int begin, int end, const auto& ahead_of, const auto& body) {
    int k = begin, at = tile_offset + begin * tile_step, down = begin * step;
#pragma unroll 1
    for (; k + kAtOnce <= end; k += kAtOnce) {
      decltype(ahead_of(0)) ahead[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) ahead[i] = ahead_of(down + i * step);
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i, at += tile_step, down += step) body(at, down, ahead[i]);
    }
#pragma unroll 1
    for (; k < end; ++k, at += tile_step, down += step) body(at, down, ahead_of(down));
  };
  const auto load = [&](const char* tile, int at) { return *reinterpret_cast<const uint4*>(tile + at); };
  // Copies are waited for by halves of the rows.
  const int half = (own_rows + 1) / 2;

  for (int k = 0; k < own_rows; ++k) {
    fetch(offset + k * step, tile_offset + k * tile_step);
    if (k + 1 == half) ptx::cp_async_commit();
  }
  ptx::cp_async_commit();

  // The last bit of `turn`: which of the two a unit takes; the other: the parity of its barrier's phase.
#pragma unroll 1
  for (unsigned turn = 0; unit < a.units; turn = (turn + 1) % 4) {
    const int image = image_of(unit), channel = channel_of(unit), next = unit + static_cast<int>(ptx::cluster_count());
    const int bundle = unit - image * a.bundles;
    const bool more = next < a.units;
    for (int j = groupnorm::linear_thread(); j < plan.bundle; j += static_cast<int>(blockDim.x * blockDim.y)) {
      const int group = unit * plan.bundle + j;
      s.finals[j] = {__ldg(a.mean + group), __ldg(a.rstd + group)};
    }
    const groupnorm::ChannelParameters<A> parameters =
        groupnorm::load_parameters<T, A>(a.t, channel, image * a.scale_shift_stride + channel);
    if (first == 0) {
      float factor[8], scale[8] = {};
      parameters.gamma.unpack(factor);
      if (a.t.scale != nullptr) unpack_vector<T>(parameters.scale, scale);
#pragma unroll
      for (int i = 0; i < 8; ++i) s.factors[column * 8 + i] = factor[i] * (1.0f + scale[i]);
    }
    __syncthreads();
    if (!more) ptx::griddepcontrol_launch_dependents();  // of few blocks, which wait for the end of this

    float ca[8], cb[8];
    groupnorm::fold_coefficients<T, kActivate>(a, parameters, column, s.finals, ca, cb);
    {
      float sum[8] = {}, sum_x[8] = {};
      const auto sum_rows = [&](int begin, int end) {
        each_row(
            begin, end,
            [&](int down) {
              if (a.residual != nullptr) ptx::prefetch_l2(static_cast<const T*>(a.residual) + offset + down);
              return 0;
            },
            [&](int at, int, int) { add_row<T, kActivate>(load(s.x, at), load(s.dy, at), ca, cb, sum, sum_x); });
      };
      ptx::cp_async_wait<1>();
      sum_rows(0, half);
      ptx::cp_async_wait<0>();
      sum_rows(half, own_rows);
      // Every block runs: its shared memory may be written.
      if (plan.blocks > 1 && unit == static_cast<int>(ptx::cluster_index())) ptx::cluster_wait();
      float2* const parts = s.parts + static_cast<int>(turn % 2) * s.part_count;
      add_channels<kActivate>(a, s.pairs, s.finals, sum, sum_x, [&](int c, float2 total) {
        s.channels[c] = {s.factors[c] * total.x, s.factors[c] * total.y};
        if (plan.blocks == 1)
          parts[c] = total;
        else
          tell(parts + rank * a.owned + c % a.owned, total, c / a.owned, s.arrived + turn % 2 * 8);
      });
    }
    add_blocks<T>(a, s, rank, image, bundle, static_cast<int>(turn % 2), turn / 2);

    float of_x[8], rest[8];
    of_channels(a, column, s.terms, of_x, rest);
    const std::int64_t present = offset;
    offset = more ? offset_of(next) : 0;
    const auto write = [&](int begin, int end) {
      each_row(
          begin, end, [&](int down) { return load_residual<T>(a, present + down); },
          [&](int at, int down, const uint4& residual) {
            const uint4 x = load(s.x, at), dy = load(s.dy, at);
            if (more) fetch(offset + down, at);
            write_row<T, kActivate>(a, residual, x, dy, present + down, ca, cb, of_x, rest);
          });
      ptx::cp_async_commit();
    };
    write(0, half);
    write(half, own_rows);
    unit = next;
  }
  if (plan.blocks > 1 && groupnorm::linear_thread() == 0) {  // all have waited for all that comes
    ptx::mbarrier_invalidate(s.arrived);
    ptx::mbarrier_invalidate(s.arrived + 8);
  }
}

}  // namespace
}  // namespace noisefloor::groupnorm_backward
