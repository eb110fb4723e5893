// groupnorm_backward, tiled: passes that read whole rows by 16-byte accesses, over the slabs of rows of
// kernels/groupnorm/slabs.h.
//
// 1. kernels/groupnorm's tiled statistics: mean and rstd of each group.
// 2. sums_kernel: dv and dv xh of each channel, added over a slab.
// 3. group_kernel: slabs added, a warp per channel; dscale and dshift; the means of dh and dh xh of each group.
// 4. dx_kernel, for which dv is computed again. 5. parameters_kernel: images added.
//
// Better than naive: every sector fetched is used, slabs fill the GPU whatever n * groups is, x is read three times
// instead of four, and sums are not a block reduction a channel.
//
// Requires: nothing; fp32, bf16 and fp16.
// Bound: memory, three reads of x, two of dy and one write; small problems: six launches.
// Numerics: fp32; all sums in fixed order.
// Source: original.
#include "kernels/device/dispatch.cuh"
#include "kernels/groupnorm/slabs.cuh"
#include "kernels/groupnorm_backward/device.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

using groupnorm::kSlabThreads;
using groupnorm::SlabPlan;
using groupnorm::SlabPosition;

constexpr int kGroupThreads = 256;

int lanes_of(const Problem& p, DType dtype) {
  const int lanes = 16 / static_cast<int>(size_of(dtype));
  return p.channels % lanes == 0 ? lanes : 1;
}
SlabPlan plan_of(const Problem& p, DType dtype, int sm_count) {
  return groupnorm::plan_slabs(statistics_of(p), lanes_of(p, dtype), sm_count);
}
std::size_t statistics_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return aligned(groupnorm::tiled_workspace_bytes(statistics_of(p), dtype, device));
}

// The workspace behind that of the statistics, fp32.
struct Work {
  float *means, *rstds;         // [n, groups]
  float *mean_dh, *mean_dh_xh;  // [n, groups]
  float* sums;                  // [n, 2, channels]
  float* coefficients;          // the forward op's, not read
  float* partials;              // [n, slabs, 2, channels]

  Work(const Problem& p, float* base)
      : means(base),
        rstds(means + p.n * p.groups),
        mean_dh(rstds + p.n * p.groups),
        mean_dh_xh(mean_dh + p.n * p.groups),
        sums(mean_dh_xh + p.n * p.groups),
        coefficients(sums + 2 * p.n * p.channels),
        partials(coefficients + 2 * p.n * p.channels) {}
  static std::size_t floats(const Problem& p, const SlabPlan& plan) {
    return static_cast<std::size_t>(4 * p.n * p.groups + (4 + 2 * plan.slabs) * p.n * p.channels);
  }
};

// The thread's channels, of one image, from `first` on.
template <class T, int kLanes>
struct Channels {
  Channel at[kLanes];

  __device__ __forceinline__ Channels(const Problem& p, const Tensors& t, const Work& work, std::int64_t first) {
    const unsigned width = static_cast<unsigned>(p.channels) / static_cast<unsigned>(p.groups);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t group = blockIdx.z * p.groups + static_cast<unsigned>(first + i) / width;
      at[i] = channel_of<T>(p, t, work.means[group], work.rstds[group], blockIdx.z, first + i);
    }
  }
  // xh and dv of the elements from `offset` on.
  __device__ __forceinline__ void load(const Problem& p, const Tensors& t, std::int64_t offset, float (&xh)[kLanes],
                                       float (&dv)[kLanes]) const {
    groupnorm::load_lanes<T>(static_cast<const T*>(t.x) + offset, xh);
    groupnorm::load_lanes<T>(static_cast<const T*>(t.dy) + offset, dv);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) to_xh_and_dv(p, at[i], xh[i], dv[i]);
  }
};

template <class T, int kLanes>
__global__ void __launch_bounds__(kSlabThreads) sums_kernel(Problem p, Tensors t, SlabPlan plan, Work work) {
  __shared__ float shared[2][kSlabThreads * kLanes];
  static_assert(sizeof(shared) <= 16 * 1024);
  const SlabPosition at = groupnorm::slab_position(p.hw, plan, kLanes);
  float sum[kLanes] = {}, sum_xh[kLanes] = {};
  if (at.channel < p.channels) {
    const Channels<T, kLanes> channels(p, t, work, at.channel);
#pragma unroll 2
    for (std::int64_t s = at.row; s < at.rows; s += plan.tile_rows) {
      float xh[kLanes], dv[kLanes];
      channels.load(p, t, (at.first_row + s) * p.channels + at.channel, xh, dv);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        sum[i] += dv[i];
        sum_xh[i] += dv[i] * xh[i];
      }
    }
  }
  // [tile_rows][lane][tile_columns], so that neighbouring threads write neighbouring words.
  const int column = static_cast<int>(threadIdx.x) % plan.tile_columns, stride = plan.tile_columns * kLanes;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    shared[0][at.row * stride + i * plan.tile_columns + column] = sum[i];
    shared[1][at.row * stride + i * plan.tile_columns + column] = sum_xh[i];
  }
  __syncthreads();
  if (at.row != 0 || at.channel >= p.channels) return;
  float* const partial = work.partials + (blockIdx.z * plan.slabs + blockIdx.x) * 2 * p.channels + at.channel;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    float total = 0, total_xh = 0;
    for (int row = 0; row < plan.tile_rows; ++row) {
      total += shared[0][row * stride + i * plan.tile_columns + column];
      total_xh += shared[1][row * stride + i * plan.tile_columns + column];
    }
    partial[i] = total;
    partial[p.channels + i] = total_xh;
  }
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

// One block per (image, group).
template <class T>
__global__ void __launch_bounds__(kGroupThreads) group_kernel(Problem p, Tensors t, std::int64_t slabs, Work work) {
  constexpr int kWarps = kGroupThreads / 32;
  __shared__ float shared[2][kWarps];
  const unsigned groups = static_cast<unsigned>(p.groups), width = static_cast<unsigned>(p.channels) / groups;
  const std::int64_t image = blockIdx.x / groups;
  const std::int64_t first = blockIdx.x % groups * width;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float dh = 0, dh_xh = 0;
  for (std::int64_t c = first + warp; c < first + width; c += kWarps) {
    float sum = 0, sum_xh = 0;
    for (std::int64_t slab = lane; slab < slabs; slab += 32) {
      const float* const partial = work.partials + (image * slabs + slab) * 2 * p.channels + c;
      sum += partial[0];
      sum_xh += partial[p.channels];
    }
    sum = warp_sum(sum);
    sum_xh = warp_sum(sum_xh);
    const Channel channel = channel_of<T>(p, t, 0.0f, 0.0f, image, c);
    dh += channel.a * sum;
    dh_xh += channel.a * sum_xh;
    if (lane == 0) store_sums<T>(gradients_of(p, t), image, c, sum, sum_xh, work.sums);
  }
  if (lane == 0) {
    shared[0][warp] = dh;
    shared[1][warp] = dh_xh;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int other = 1; other < kWarps; ++other) {
    dh += shared[0][other];
    dh_xh += shared[1][other];
  }
  const float share = 1.0f / (static_cast<float>(p.hw) * static_cast<float>(width));
  work.mean_dh[blockIdx.x] = dh * share;
  work.mean_dh_xh[blockIdx.x] = dh_xh * share;
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kSlabThreads)
    dx_kernel(Problem p, Tensors t, SlabPlan plan, Work work, float residual_scale) {
  const SlabPosition at = groupnorm::slab_position(p.hw, plan, kLanes);
  if (at.channel >= p.channels) return;
  const Channels<T, kLanes> channels(p, t, work, at.channel);
  const unsigned width = static_cast<unsigned>(p.channels) / static_cast<unsigned>(p.groups);
  float constant[kLanes], of_xh[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const std::int64_t group = blockIdx.z * p.groups + static_cast<unsigned>(at.channel + i) / width;
    constant[i] = work.mean_dh[group];
    of_xh[i] = work.mean_dh_xh[group];
  }
  for (std::int64_t s = at.row; s < at.rows; s += plan.tile_rows) {
    const std::int64_t offset = (at.first_row + s) * p.channels + at.channel;
    float xh[kLanes], dx[kLanes];
    channels.load(p, t, offset, xh, dx);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const Channel& channel = channels.at[i];
      dx[i] = channel.rstd * (channel.a * dx[i] - constant[i] - xh[i] * of_xh[i]);
    }
    if (t.residual != nullptr) {
      float residual[kLanes];
      groupnorm::load_lanes<T>(static_cast<const T*>(t.residual) + offset, residual);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) dx[i] += residual_scale * residual[i];
    }
    groupnorm::store_lanes<T>(static_cast<T*>(t.dx) + offset, dx);
  }
}

template <class T, int kLanes>
Status launch(const Problem& p, const Tensors& t, const SlabPlan& plan, const Work& work,
              const LaunchContext& context) {
  const LaunchShape slabs{
      .grid = dim3(static_cast<unsigned>(plan.slabs), static_cast<unsigned>(plan.tiles), static_cast<unsigned>(p.n)),
      .block = static_cast<unsigned>(plan.threads())};
  Status status =
      launch_kernel("groupnorm_backward sums_kernel", sums_kernel<T, kLanes>, slabs, context.stream, p, t, plan, work);
  if (!status.ok()) return status;
  status = launch_kernel("groupnorm_backward group_kernel", group_kernel<T>,
                         {.grid = static_cast<unsigned>(p.n * p.groups), .block = kGroupThreads}, context.stream, p, t,
                         plan.slabs, work);
  if (!status.ok()) return status;
  return launch_kernel("groupnorm_backward dx_kernel", dx_kernel<T, kLanes>, slabs, context.stream, p, t, plan, work,
                       static_cast<float>(p.residual_scale));
}

}  // namespace

std::size_t tiled_workspace_bytes(const Problem& p, DType dtype, const DeviceInfo& device) {
  return statistics_bytes(p, dtype, device) + Work::floats(p, plan_of(p, dtype, device.sm_count)) * sizeof(float);
}

Status launch_tiled(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                    const LaunchContext& context) {
  if (scratch.workspace == nullptr) return failure(StatusCode::invalid_argument, "groupnorm_backward: no workspace");
  const Tensors t = unpacked(p, dtype, tensors);
  const SlabPlan plan = plan_of(p, dtype, context.device->sm_count);
  const Work work(p, reinterpret_cast<float*>(static_cast<std::byte*>(scratch.workspace) +
                                              statistics_bytes(p, dtype, *context.device)));
  groupnorm::Tensors forward;
  forward.x = t.x, forward.gamma = t.gamma, forward.beta = t.beta;
  forward.y = work.coefficients, forward.mean = work.means, forward.rstd = work.rstds;
  Status status = groupnorm::launch_tiled(statistics_of(p), dtype, forward, scratch, context);
  if (!status.ok()) return status;
  status = with_type(dtype, [&]<class T>(T) {
    return lanes_of(p, dtype) == 1 ? launch<T, 1>(p, t, plan, work, context)
                                   : launch<T, kVectorLanes<T>>(p, t, plan, work, context);
  });
  return status.ok() ? launch_parameters("groupnorm_backward parameters_kernel", p.n, p.channels, work.sums, t.dgamma,
                                         t.dbeta, context)
                     : status;
}

}  // namespace noisefloor::groupnorm_backward
