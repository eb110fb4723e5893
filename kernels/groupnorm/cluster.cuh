// The device code of ptx_sm90a; ptx_sm90a.cu says what it does and why.
#pragma once

#include "kernels/groupnorm/cluster_plan.h"
#include "kernels/groupnorm/device.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/prefetch.cuh"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::groupnorm {
namespace {

struct ClusterArguments {
  Tensors t;
  int hw, channels, bundles;  // bundles: of an image
  int scale_shift_stride;     // elements from image to image
  int width;                  // channels of a group
  int stages;                 // parts of a shared tile that are waited for one after the other
  int stage_accesses;         // of a thread in each
  float eps;
  float size_inverse;  // 1 / (hw * width)
  // For divide.
  float bundles_inverse, width_inverse, tile_rows_inverse;
  bool early;            // the next launch may start once this one's rows have arrived; else before it writes
  int staggered;         // the first so many clusters start one after another
  float stagger_cycles;  // between them
  ClusterPlan plan;
};

constexpr int kStages = 4;  // at most
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kTeam = 16;  // lanes that reduce one group

// value / divisor, given 1.0f / divisor; exact for value < 2^21: (value + 1/2) / divisor is 1 / (2 divisor) or more
// away from an integer, and rounding moves it by less than 2^-23 of itself, 1 / (4 divisor).
__device__ __forceinline__ int divide(int value, float inverse) {
  return static_cast<int>((static_cast<float>(value) + 0.5f) * inverse);
}

__device__ __forceinline__ int linear_thread() {
  return static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
}

__device__ __forceinline__ float team_sum(float value) {
#pragma unroll
  for (int mask = kTeam / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(kAllLanes, value, mask);
  return value;
}

// Until all but the last `later` stages of the thread's copies have arrived.
__device__ __forceinline__ void wait_stages(int later) {
  switch (later) {
    case 3:
      return ptx::cp_async_wait<3>();
    case 2:
      return ptx::cp_async_wait<2>();
    case 1:
      return ptx::cp_async_wait<1>();
    default:
      return ptx::cp_async_wait<0>();
  }
}

// What a thread has seen of its eight channels: sums of x - shift, then of its squares. Channels of one group share one
// shift, a value of the thread's first row, so that summing needs nothing but the thread's own rows.
struct ChannelSums {
  float shift[8], v[16];
};

// Of the eight channels from 8 * column on of the bundle: those that lie in their first group.
__device__ __forceinline__ int channels_in_first(const ClusterArguments& a, int column) {
  return min((divide(column * 8, a.width_inverse) + 1) * a.width - column * 8, 8);
}

template <class T>
__device__ __forceinline__ void start_sums(const ClusterArguments& a, ChannelSums& sums, const uint4& row, int split) {
  unpack_vector<T>(row, sums.shift);
  if (a.plan.entries == 8) return;
#pragma unroll
  for (int i = 1; i < 7; ++i) sums.shift[i] = i < split ? sums.shift[0] : sums.shift[7];
  if (split == 8) sums.shift[7] = sums.shift[0];
}

template <class T>
__device__ __forceinline__ void add_row(ChannelSums& sums, const uint4& row) {
  float value[8];
  unpack_vector<T>(row, value);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float d = value[i] - sums.shift[i];
    sums.v[i] += d;
    sums.v[i + 8] += d * d;
  }
}

// The rows of a block that each row of threads sums: `most` for the first `rest`, one less for the others.
struct RowShare {
  int rest;
  float least, most;

  __device__ __forceinline__ RowShare(const ClusterArguments& a, int rows) {
    const int share = divide(rows, a.tile_rows_inverse);
    rest = rows - share * a.plan.tile_rows;
    least = static_cast<float>(share);
    most = least + 1.0f;
  }
  __device__ __forceinline__ float of(int row) const { return row < rest ? most : least; }
};

// Mean and M2 of `count` values from the sums about `shift`; of none: shift and 0, which weigh nothing.
__device__ __forceinline__ float2 entry_moments(float shift, float sum, float squares, float count) {
  const float offset = sum * ptx::rcp_approx(fmaxf(count, 1.0f));
  return {shift + offset, squares - sum * offset};
}

// Leaves the moments of what the thread has summed for group_moments, [entry][row]: entry 2 * column for its first
// group and 2 * column + 1 for its second, or an entry for each channel where eight channels may span more groups.
__device__ __forceinline__ void store_moments(const ClusterArguments& a, const ChannelSums& sums, float rows, int split,
                                              float2* shared) {
  const int pitch = a.plan.tile_rows | 1;
  float2* out = shared + static_cast<int>(threadIdx.x) * a.plan.entries * pitch + threadIdx.y;
  if (a.plan.entries == 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i * pitch] = entry_moments(sums.shift[i], sums.v[i], sums.v[i + 8], rows);
    return;
  }
  float2 low{}, high{};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool in_low = i < split;
    low.x += in_low ? sums.v[i] : 0.0f;
    low.y += in_low ? sums.v[i + 8] : 0.0f;
    high.x += in_low ? 0.0f : sums.v[i];
    high.y += in_low ? 0.0f : sums.v[i + 8];
  }
  const auto low_channels = static_cast<float>(split);
  out[0] = entry_moments(sums.shift[0], low.x, low.y, rows * low_channels);
  out[pitch] = entry_moments(sums.shift[7], high.x, high.y, rows * (8.0f - low_channels));
}

// Mean and M2 of group `j` of the bundle over this block's rows, to all lanes of a team: Chan's formula over the
// entries, about the first one's mean.
__device__ __forceinline__ float2 group_moments(const ClusterArguments& a, const float2* entries, const RowShare& share,
                                                int rows, int j) {
  const int begin = j * a.width;
  const int end = begin + a.width;
  const bool pairs = a.plan.entries == 2;
  const int pitch = a.plan.tile_rows | 1;
  const int last = pairs ? (end + 7) / 8 : end;
  const int start = pairs ? begin / 8 : begin;
  const auto entry_of = [&](int i) { return (pairs ? 2 * i + (i * 8 < begin ? 1 : 0) : i) * pitch; };
  const float origin = entries[entry_of(start)].x;
  float sum = 0, squares = 0;
#pragma unroll 1
  for (int i = start; i < last; ++i) {
    const float2* entry = entries + entry_of(i);
    const float channels = pairs ? static_cast<float>(min(end, 8 * i + 8) - max(begin, 8 * i)) : 1.0f;
#pragma unroll 2
    for (int row = linear_thread() % kTeam; row < a.plan.tile_rows; row += kTeam) {
      const float2 part = entry[row];
      const float count = channels * share.of(row);
      const float delta = part.x - origin;
      sum += count * delta;
      squares += part.y + count * delta * delta;
    }
  }
  sum = team_sum(sum);
  squares = team_sum(squares);
  if (rows == 0) return {0, 0};
  const float offset = sum * ptx::rcp_approx(static_cast<float>(rows * a.width));
  return {origin + offset, fmaxf(squares - sum * offset, 0.0f)};
}

__device__ __forceinline__ int rows_of(const ClusterArguments& a, int rank) {
  return max(min(a.plan.rows, a.hw - rank * a.plan.rows), 0);
}

__device__ __forceinline__ float2 mean_and_rstd(const ClusterArguments& a, float mean, float m2) {
  return {mean, rsqrtf(m2 * a.size_inverse + a.eps)};
}

// Chan's formula over the blocks of the cluster, about the first one's mean; mean and rstd, to all lanes of a team.
__device__ __forceinline__ float2 merge_blocks(const ClusterArguments& a, const float2* moments, int j) {
  const float first = moments[j].x;
  float sum = 0, squares = 0;
#pragma unroll 1
  for (int rank = linear_thread() % kTeam; rank < a.plan.blocks; rank += kTeam) {
    const float2 block = moments[rank * a.plan.bundle + j];
    const float count = static_cast<float>(rows_of(a, rank) * a.width);
    const float delta = block.x - first;
    sum += count * delta;
    squares += block.y + count * delta * delta;
  }
  sum = team_sum(sum);
  const float offset = sum * a.size_inverse;
  return mean_and_rstd(a, first + offset, fmaxf(team_sum(squares) - sum * offset, 0.0f));
}

template <class T, bool kActivate, int kHeld>
__global__ void __launch_bounds__(max_cluster_threads(kHeld), 2)
    cluster_kernel(const __grid_constant__ ClusterArguments a) {
  extern __shared__ __align__(16) char tile[];  // [rows][columns] of 16 bytes
  const ClusterPlan& plan = a.plan;
  const int pitch = plan.columns * 16;
  auto* sums = reinterpret_cast<float2*>(tile + plan.shared_rows * pitch);  // [columns][entries][tile_rows | 1]
  float2* moments = sums + plan.sums();                                     // [blocks][bundle]
  float2* finals = moments + plan.blocks * plan.bundle;                     // [bundle]: mean, rstd
  const std::uint32_t arrived = ptx::shared_address(finals + plan.bundle);  // mbarrier: moments are complete
  const int rank = static_cast<int>(ptx::cluster_rank());
  const int unit = static_cast<int>(ptx::cluster_index());
  const int image = divide(unit, a.bundles_inverse);
  const int bundle = unit - image * a.bundles;
  const int rows = rows_of(a, rank);
  const int first = static_cast<int>(threadIdx.y);
  const int column = static_cast<int>(threadIdx.x);
  const int channel = (bundle * plan.columns + column) * 8;
  const std::int64_t offset =
      (static_cast<std::int64_t>(image) * a.hw + rank * plan.rows + first) * a.channels + channel;
  const std::int64_t step = static_cast<std::int64_t>(plan.tile_rows) * a.channels;
  const int tile_offset = first * pitch + column * 16;
  const int tile_step = plan.tile_rows * pitch;

  if (plan.blocks > 1) {
    if (linear_thread() == 0) {
      ptx::mbarrier_init(arrived, 1);
      ptx::fence_mbarrier_init();
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
  // The parameters of the thread's channels travel to L2 while x does, and to registers while the statistics are
  // merged. L2 is coherent: to fetch there what an earlier kernel still writes is harmless.
  const bool scale_shift = a.t.scale != nullptr;
  const auto parameter = [](const void* base, int index) { return static_cast<const T*>(base) + index; };
  const int row = image * a.scale_shift_stride + channel;
  if (first == 0) {
    ptx::prefetch_l2(parameter(a.t.gamma, channel));
    ptx::prefetch_l2(parameter(a.t.beta, channel));
    if (scale_shift) {
      ptx::prefetch_l2(parameter(a.t.scale, row));
      ptx::prefetch_l2(parameter(a.t.shift, row));
    }
  }
  ptx::griddepcontrol_wait();  // x, scale and shift are there, y, mean and rstd may be written
  // The first wave of clusters would load at one time, reduce at one time, and write at one time. Each starts when the
  // ones before it should have been loaded, so that loads overlap with writes from then on.
  if (unit < a.staggered) {
    const auto start = static_cast<unsigned>(clock());
    const auto delay = static_cast<unsigned>(static_cast<float>(unit) * a.stagger_cycles);
    while (static_cast<unsigned>(clock()) - start < delay) __nanosleep(50);
  }

  // The thread's first kHeld rows travel to registers, the others to shared memory, in stages, so that the first are
  // summed while the last travel. A thread sums what it has fetched itself: no barrier between.
  uint4 held[kHeld + 1];
  {
    const T* source = static_cast<const T*>(a.t.x) + offset;
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * plan.tile_rows < rows) held[k] = load_16_bytes(source + k * step);
    }
    source += kHeld * step;
    std::uint32_t destination = ptx::shared_address(tile) + tile_offset;
    int r = first + kHeld * plan.tile_rows;
#pragma unroll 1
    for (int stage = 0; stage < a.stages; ++stage) {
#pragma unroll 4
      for (int k = 0; k < a.stage_accesses && r < rows; ++k, r += plan.tile_rows) {
        ptx::cp_async_16_alone(destination, source);
        source += step;
        destination += tile_step;
      }
      ptx::cp_async_commit();
    }
  }
  ChannelSums seen{};
  const int split = channels_in_first(a, column);
  {
    if (kHeld > 0 && first < rows) start_sums<T>(a, seen, held[0], split);
#pragma unroll
    for (int k = 0; k < kHeld; ++k) {
      if (first + k * plan.tile_rows < rows) add_row<T>(seen, held[k]);
    }
    const char* source = tile + tile_offset;
    int r = first + kHeld * plan.tile_rows;
#pragma unroll 1
    for (int later = a.stages - 1; later >= 0; --later) {
      wait_stages(later);
      if (kHeld == 0 && later == a.stages - 1 && first < rows)
        start_sums<T>(a, seen, *reinterpret_cast<const uint4*>(source), split);
#pragma unroll 2
      for (int k = 0; k < a.stage_accesses && r < rows; ++k, r += plan.tile_rows) {
        add_row<T>(seen, *reinterpret_cast<const uint4*>(source));
        source += tile_step;
      }
    }
  }
  const RowShare share(a, rows);
  store_moments(a, seen, share.of(first), split, sums);
  if (a.early) ptx::griddepcontrol_launch_dependents();
  const int thread = linear_thread();
  const int teams = plan.threads / kTeam;  // of whole warps: the block's last, partial warp does not reduce
  const int team = thread / kTeam;
  const int team_lane = thread % kTeam;
  if (plan.blocks > 1) ptx::cluster_wait();  // every block runs: its shared memory may be written
  const uint4 gamma = load_16_bytes(parameter(a.t.gamma, channel));
  const uint4 beta = load_16_bytes(parameter(a.t.beta, channel));
  uint4 scale{}, shift{};
  if (scale_shift) {
    scale = load_16_bytes(parameter(a.t.scale, row));
    shift = load_16_bytes(parameter(a.t.shift, row));
  }
  __syncthreads();
  if (thread < plan.threads) {
#pragma unroll 1
    for (int base = 0; base < plan.bundle; base += teams) {
      const int j = base + team;
      const float2 own = group_moments(a, sums, share, rows, min(j, plan.bundle - 1));
      if (j >= plan.bundle) continue;
      if (plan.blocks == 1) {
        if (team_lane == 0) finals[j] = mean_and_rstd(a, own.x, own.y);
      } else {
        const std::uint32_t place = ptx::shared_address(moments + rank * plan.bundle + j);
        for (int target = team_lane; target < plan.blocks; target += kTeam)
          ptx::store_async(ptx::map_to_rank(place, target), own, ptx::map_to_rank(arrived, target));
      }
    }
  }
  if (plan.blocks > 1) {
    // The barrier's one arrival, so that its phase cannot end before all bytes are announced; those that came before
    // have left its count of bytes below zero, as it may be. Here, behind a __syncthreads, racecheck sees it ordered
    // after the initialisation.
    if (thread == 0)
      ptx::mbarrier_arrive_expect_tx(arrived, plan.blocks * plan.bundle * static_cast<int>(sizeof(float2)));
    ptx::mbarrier_wait(arrived, 0);
    if (thread < plan.threads) {
#pragma unroll 1
      for (int base = 0; base < plan.bundle; base += teams) {
        const int j = base + team;
        const float2 total = merge_blocks(a, moments, min(j, plan.bundle - 1));
        if (j < plan.bundle && team_lane == 0) finals[j] = total;
      }
    }
  }
  __syncthreads();
  // Every thread has waited for the moments, so every block's stores to this barrier have arrived.
  if (plan.blocks > 1 && thread == 0) ptx::mbarrier_invalidate(arrived);
  if (a.t.mean != nullptr && rank == 0) {
    for (int j = thread; j < plan.bundle; j += static_cast<int>(blockDim.x * blockDim.y)) {
      a.t.mean[unit * plan.bundle + j] = finals[j].x;
      a.t.rstd[unit * plan.bundle + j] = finals[j].y;
    }
  }

  float ca[8], cb[8];
  unpack_vector<T>(gamma, ca);
  unpack_vector<T>(beta, cb);
  int group = divide(column * 8, a.width_inverse);
  int position = column * 8 - group * a.width;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (position == a.width) {
      position = 0;
      ++group;
    }
    ++position;
    const float2 total = finals[group];
    ca[i] *= total.y;
    cb[i] -= total.x * ca[i];
  }
  if (scale_shift) {
    float other[8];
    unpack_vector<T>(scale, other);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      ca[i] *= 1.0f + other[i];
      cb[i] *= 1.0f + other[i];
    }
    unpack_vector<T>(shift, other);
#pragma unroll
    for (int i = 0; i < 8; ++i) cb[i] += other[i];
  }
  if constexpr (kActivate) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      ca[i] *= 0.5f;
      cb[i] *= 0.5f;
    }
  }
  if (!a.early) ptx::griddepcontrol_launch_dependents();
  T* destination = static_cast<T*>(a.t.y) + offset;
  const auto write = [&](const uint4& row) {
    float value[8];
    unpack_vector<T>(row, value);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      value[i] = value[i] * ca[i] + cb[i];
      if constexpr (kActivate) value[i] = silu_of_twice(value[i]);
    }
    store_vector<T>(destination, value);
    destination += step;
  };
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
    if (first + k * plan.tile_rows < rows) write(held[k]);
  }
  const char* source = tile + tile_offset;
#pragma unroll 2
  for (int r = first + kHeld * plan.tile_rows; r < rows; r += plan.tile_rows) {
    write(*reinterpret_cast<const uint4*>(source));
    source += tile_step;
  }
}

}  // namespace
}  // namespace noisefloor::groupnorm
