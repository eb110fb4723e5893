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
  float eps;
  float size_inverse;  // 1 / (hw * width)
  // For divide.
  float bundles_inverse, width_inverse, columns_inverse;
  ClusterPlan plan;
};

constexpr unsigned kAllLanes = 0xffffffffu;
constexpr int kTeam = 8;  // lanes that reduce one group

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

// One exchange of transpose_sum: halves the number of values that a lane holds.
template <int kHalf>
__device__ __forceinline__ void transpose_step(float (&v)[16]) {
  const bool upper = (linear_thread() & (2 * kHalf)) != 0;
#pragma unroll
  for (int i = 0; i < kHalf; ++i) {
    const float send = upper ? v[i] : v[i + kHalf];
    const float keep = upper ? v[i + kHalf] : v[i];
    v[i] = keep + __shfl_xor_sync(kAllLanes, send, 2 * kHalf);
  }
}

// Sums 16 values over the warp in 16 shuffles: lane l returns the total of value l / 2.
__device__ __forceinline__ float transpose_sum(float (&v)[16]) {
  transpose_step<8>(v);
  transpose_step<4>(v);
  transpose_step<2>(v);
  transpose_step<1>(v);
  return v[0] + __shfl_xor_sync(kAllLanes, v[0], 1);
}

// For channels first .. first + 7 of the block: the value that the first channel of their group has in the tile's first
// row.
template <class T>
__device__ __forceinline__ void group_shifts(const ClusterArguments& a, const char* tile, int first,
                                             float (&shift)[8]) {
  int start = divide(first, a.width_inverse) * a.width;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (first + i == start + a.width) start += a.width;
    shift[i] = to_float(reinterpret_cast<const T*>(tile)[start]);
  }
}

// Sum and sum of squares of x - shift for each channel, shift being the first value of the channel's group in the
// block: a warp takes one 16-byte column (8 channels), a lane every 32nd row of the warp's part.
template <class T>
__device__ __forceinline__ void channel_sums(const ClusterArguments& a, const char* tile, int rows, float* sums) {
  const ClusterPlan& plan = a.plan;
  const int lane = linear_thread() % 32;
  const int warps = plan.threads / 32;
#pragma unroll 1
  for (int task = linear_thread() / 32; task < plan.columns * plan.parts; task += warps) {
    const int part = divide(task, a.columns_inverse);
    const int column = task - part * plan.columns;
    float shift[8], v[16] = {};
    group_shifts<T>(a, tile, column * 8, shift);
    const char* source = tile + column * 16;
#pragma unroll 2
    for (int r = part * 32 + lane; r < rows; r += plan.parts * 32) {
      float value[8];
      unpack_vector<T>(*reinterpret_cast<const uint4*>(source + r * plan.pitch), value);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float d = value[i] - shift[i];
        v[i] += d;
        v[i + 8] += d * d;
      }
    }
    const float total = transpose_sum(v);
    const int index = lane / 2;  // 0..7 sums, 8..15 squares
    const int channels = plan.columns * 8;
    if (lane % 2 == 0) sums[(part * 2 + index / 8) * channels + column * 8 + index % 8] = total;
  }
}

// Mean and M2 of group `j` of the bundle over this block's rows, to all lanes of a team.
template <class T>
__device__ __forceinline__ float2 group_moments(const ClusterArguments& a, const char* tile, const float* sums,
                                                int rows, int j) {
  const int channels = a.plan.columns * 8;
  float sum = 0, squares = 0;
#pragma unroll 1
  for (int part = 0; part < a.plan.parts; ++part) {
#pragma unroll 1
    for (int c = linear_thread() % kTeam; c < a.width; c += kTeam) {
      sum += sums[2 * part * channels + j * a.width + c];
      squares += sums[(2 * part + 1) * channels + j * a.width + c];
    }
  }
  sum = team_sum(sum);
  squares = team_sum(squares);
  if (rows == 0) return {0, 0};
  const float offset = sum * ptx::rcp_approx(static_cast<float>(rows * a.width));
  return {to_float(reinterpret_cast<const T*>(tile)[j * a.width]) + offset, fmaxf(squares - sum * offset, 0.0f)};
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
  extern __shared__ __align__(16) char tile[];  // [rows][pitch]
  const ClusterPlan& plan = a.plan;
  auto* sums = reinterpret_cast<float*>(tile + plan.rows * plan.pitch);                 // [parts][2][columns * 8]
  auto* moments = reinterpret_cast<float2*>(sums + plan.parts * 2 * plan.columns * 8);  // [blocks][bundle]
  float2* finals = moments + plan.blocks * plan.bundle;                                 // [bundle]: mean, rstd
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
  const int tile_offset = first * plan.pitch + column * 16;
  const int tile_step = plan.tile_rows * plan.pitch;

  {
    const T* source = static_cast<const T*>(a.t.x) + offset;
    std::uint32_t destination = ptx::shared_address(tile) + tile_offset;
#pragma unroll 4
    for (int r = first; r < rows; r += plan.tile_rows) {
      ptx::cp_async_16(destination, source, true);
      source += step;
      destination += tile_step;
    }
  }
  ptx::cp_async_commit();
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
  ptx::cp_async_wait<0>();
  __syncthreads();
  const int thread = linear_thread();
  const int teams = plan.threads / kTeam;  // of whole warps: the block's last, partial warp only copies
  const int team = thread / kTeam;
  const int team_lane = thread % kTeam;
  if (thread < plan.threads) channel_sums<T>(a, tile, rows, sums);
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
