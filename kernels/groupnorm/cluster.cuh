// The device code of ptx_sm90a; ptx_sm90a.cu says what it does and why.
#pragma once

#include "kernels/groupnorm/cluster_plan.h"
#include "kernels/groupnorm/device.cuh"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/dsmem.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/prefetch.cuh"
#include "kernels/ptx/special_functions.cuh"

namespace noisefloor::groupnorm {
namespace {

struct ClusterArguments {
  Tensors t;
  int hw, channels, bundles;  // bundles: of an image
  int width;                  // channels of a group
  int stages;                 // parts of a tile that are waited for one after the other
  int stage_accesses;         // of a thread in each
  float eps;
  float size_inverse;  // 1 / (hw * width)
  // For divide.
  float bundles_inverse, width_inverse;
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

// For channels first .. first + 7 of the block: the value that the first channel of their group has in the block's
// first row, at `row`.
template <class T>
__device__ __forceinline__ void group_shifts(const ClusterArguments& a, const T* row, int first, float (&shift)[8]) {
  int start = divide(first, a.width_inverse) * a.width;
  if (a.plan.entries == 2) {
    const int split = start + a.width - first;
    const float low = to_float(row[start]);
    const float high = split < 8 ? to_float(row[start + a.width]) : low;
#pragma unroll
    for (int i = 0; i < 8; ++i) shift[i] = i < split ? low : high;
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (first + i == start + a.width) start += a.width;
    shift[i] = to_float(row[start]);
  }
}

// What a thread has seen of its eight channels: sums of x - shift, then of its squares.
struct ChannelSums {
  float shift[8], v[16];
};

// Adds the rows from `r` on, `count` of them at most, every tile_rows-th; `source` moves along.
template <class T>
__device__ __forceinline__ void add_rows(const ClusterArguments& a, ChannelSums& sums, const char*& source, int& r,
                                         int count, int rows, int tile_step) {
#pragma unroll 2
  for (int k = 0; k < count && r < rows; ++k, r += a.plan.tile_rows) {
    float value[8];
    unpack_vector<T>(*reinterpret_cast<const uint4*>(source), value);
    source += tile_step;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float d = value[i] - sums.shift[i];
      sums.v[i] += d;
      sums.v[i + 8] += d * d;
    }
  }
}

// Leaves the thread's sums for group_moments, [entry][row]: entry 2 * column for its first group and 2 * column + 1 for
// its second, or an entry for each channel where eight channels may span more groups.
__device__ __forceinline__ void store_sums(const ClusterArguments& a, const ChannelSums& sums, float2* shared) {
  const int column = static_cast<int>(threadIdx.x);
  const int pitch = a.plan.tile_rows | 1;
  float2* out = shared + column * a.plan.entries * pitch + threadIdx.y;
  if (a.plan.entries == 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) out[i * pitch] = {sums.v[i], sums.v[i + 8]};
    return;
  }
  const int split = (divide(column * 8, a.width_inverse) + 1) * a.width - column * 8;
  float2 low{}, high{};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const bool in_low = i < split;
    low.x += in_low ? sums.v[i] : 0.0f;
    low.y += in_low ? sums.v[i + 8] : 0.0f;
    high.x += in_low ? 0.0f : sums.v[i];
    high.y += in_low ? 0.0f : sums.v[i + 8];
  }
  out[0] = low;
  out[pitch] = high;
}

// Mean and M2 of group `j` of the bundle over this block's rows, to all lanes of a team.
template <class T>
__device__ __forceinline__ float2 group_moments(const ClusterArguments& a, const char* tile, const float2* sums,
                                                int rows, int j) {
  const int begin = j * a.width;
  const int end = begin + a.width;
  const bool pairs = a.plan.entries == 2;
  const int pitch = a.plan.tile_rows | 1;
  const int last = pairs ? (end + 7) / 8 : end;
  float sum = 0, squares = 0;
#pragma unroll 1
  for (int i = pairs ? begin / 8 : begin; i < last; ++i) {
    const int entry = pairs ? 2 * i + (i * 8 < begin ? 1 : 0) : i;
#pragma unroll 2
    for (int row = linear_thread() % kTeam; row < a.plan.tile_rows; row += kTeam) {
      const float2 part = sums[entry * pitch + row];
      sum += part.x;
      squares += part.y;
    }
  }
  sum = team_sum(sum);
  squares = team_sum(squares);
  if (rows == 0) return {0, 0};
  const float offset = sum * ptx::rcp_approx(static_cast<float>(rows * a.width));
  return {to_float(reinterpret_cast<const T*>(tile)[begin]) + offset, fmaxf(squares - sum * offset, 0.0f)};
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

template <class T, bool kActivate>
__global__ void __launch_bounds__(kMaxClusterThreads, 2) cluster_kernel(const __grid_constant__ ClusterArguments a) {
  extern __shared__ __align__(16) char tile[];  // [rows][columns] of 16 bytes
  const ClusterPlan& plan = a.plan;
  const int pitch = plan.columns * 16;
  auto* sums = reinterpret_cast<float2*>(tile + plan.rows * pitch);         // [columns][entries][tile_rows | 1]
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

  // In stages, so that the first rows are summed while the last ones travel. A thread sums what it has copied itself:
  // no barrier between.
  {
    const T* source = static_cast<const T*>(a.t.x) + offset;
    std::uint32_t destination = ptx::shared_address(tile) + tile_offset;
    int r = first;
#pragma unroll 1
    for (int stage = 0; stage < a.stages; ++stage) {
#pragma unroll 4
      for (int k = 0; k < a.stage_accesses && r < rows; ++k, r += plan.tile_rows) {
        ptx::cp_async_16(destination, source, true);
        source += step;
        destination += tile_step;
      }
      ptx::cp_async_commit();
    }
  }
  ChannelSums seen{};
  if (rows > 0)
    group_shifts<T>(a,
                    static_cast<const T*>(a.t.x) + offset - first * static_cast<std::int64_t>(a.channels) - column * 8,
                    column * 8, seen.shift);
  if (plan.blocks > 1) {
    if (linear_thread() == 0) {
      ptx::mbarrier_init(arrived, 1);
      ptx::fence_mbarrier_init();
      ptx::mbarrier_arrive_expect_tx(arrived, plan.blocks * plan.bundle * static_cast<int>(sizeof(float2)));
    }
    __syncwarp();
    ptx::cluster_arrive_relaxed();
  }
  // The parameters of the thread's channels travel to L2 while x does, and to registers while the statistics are
  // merged.
  const bool scale_shift = a.t.scale != nullptr;
  const auto parameter = [](const void* base, int index) { return static_cast<const T*>(base) + index; };
  const int row = image * a.channels + channel;
  if (first == 0) {
    ptx::prefetch_l2(parameter(a.t.gamma, channel));
    ptx::prefetch_l2(parameter(a.t.beta, channel));
    if (scale_shift) {
      ptx::prefetch_l2(parameter(a.t.scale, row));
      ptx::prefetch_l2(parameter(a.t.shift, row));
    }
  }
  {
    const char* source = tile + tile_offset;
    int r = first;
#pragma unroll 1
    for (int later = a.stages - 1; later >= 0; --later) {
      wait_stages(later);
      add_rows<T>(a, seen, source, r, a.stage_accesses, rows, tile_step);
    }
  }
  store_sums(a, seen, sums);
  const int thread = linear_thread();
  const int teams = plan.threads / kTeam;  // of whole warps: the block's last, partial warp does not reduce
  const int team = thread / kTeam;
  const int team_lane = thread % kTeam;
  if (plan.blocks > 1) ptx::cluster_wait();  // every block runs: its shared memory may be written
  const uint4 gamma = load_16_bytes<CacheHint::read_only>(parameter(a.t.gamma, channel));
  const uint4 beta = load_16_bytes<CacheHint::read_only>(parameter(a.t.beta, channel));
  uint4 scale{}, shift{};
  if (scale_shift) {
    scale = load_16_bytes<CacheHint::read_only>(parameter(a.t.scale, row));
    shift = load_16_bytes<CacheHint::read_only>(parameter(a.t.shift, row));
  }
  __syncthreads();
  if (thread < plan.threads) {
#pragma unroll 1
    for (int base = 0; base < plan.bundle; base += teams) {
      const int j = base + team;
      const float2 own = group_moments<T>(a, tile, sums, rows, min(j, plan.bundle - 1));
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
  T* destination = static_cast<T*>(a.t.y) + offset;
  const char* source = tile + tile_offset;
#pragma unroll 2
  for (int r = first; r < rows; r += plan.tile_rows) {
    float value[8];
    unpack_vector<T>(*reinterpret_cast<const uint4*>(source), value);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      value[i] = value[i] * ca[i] + cb[i];
      if constexpr (kActivate) value[i] = silu_of_twice(value[i]);
    }
    store_vector<T>(destination, value);
    source += tile_step;
    destination += step;
  }
}

}  // namespace
}  // namespace noisefloor::groupnorm
