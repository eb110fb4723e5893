// What tiled and tensor_core_sm80 share: passes over slabs of rows (kernels/groupnorm/slabs.h), but for that which
// sums.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/groupnorm/slabs.cuh"
#include "kernels/groupnorm_backward/device.cuh"

namespace noisefloor::groupnorm_backward {
namespace {  // each file that includes this is compiled for architectures of its own

using groupnorm::kSlabThreads;
using groupnorm::SlabPlan;
using groupnorm::SlabPosition;

constexpr int kGroupThreads = 256;

// The workspace, fp32.
struct Work {
  float *of_x, *rest;  // [n, groups]
  float* sums;         // [n, 2, channels]
  float* partials;     // [n, slabs, 2, channels]

  Work(const Problem& p, float* base)
      : of_x(base), rest(of_x + p.n * p.groups), sums(rest + p.n * p.groups), partials(sums + 2 * p.n * p.channels) {}
  static std::size_t floats(const Problem& p, const SlabPlan& plan) {
    return static_cast<std::size_t>(2 * p.n * p.groups + (2 + 2 * plan.slabs) * p.n * p.channels);
  }
};

// Which slab a block of the sums works on: from the last on, so that the next pass finds the first in L2.
struct Slab {
  std::int64_t image = gridDim.z - 1 - blockIdx.z, slab = gridDim.x - 1 - blockIdx.x;
};

// Whether passes work with half of v and twice dv, as `gradient` does; its tanh is too short for fp32.
template <class T>
__device__ __forceinline__ bool halves(const Problem& p) {
  return sizeof(T) == 2 && p.fusion != Fusion::none;
}

// A thread's access of each tensor, or one element.
template <class T, int kLanes>
struct Row {
  std::conditional_t<kLanes == 1, T, uint4> x, dy;
};
template <class T, int kLanes>
__device__ __forceinline__ Row<T, kLanes> fetch(const Tensors& t, std::int64_t offset) {
  using Access = decltype(Row<T, kLanes>::x);
  const auto at = [&](const void* tensor) {
    return *reinterpret_cast<const Access*>(static_cast<const T*>(tensor) + offset);
  };
  return {at(t.x), at(t.dy)};
}
template <class T>
__device__ __forceinline__ void unpack(T value, float (&out)[1]) {
  out[0] = to_float(value);
}
template <class T, int kLanes>
__device__ __forceinline__ void unpack(const uint4& bits, float (&out)[kLanes]) {
  unpack_vector<T>(bits, out);
}

// The thread's channels of an image, from `first` on: v, or half of it, = x a + b.
template <class T, int kLanes>
struct Channels {
  float a[kLanes], b[kLanes];
  bool activated;

  __device__ __forceinline__ Channels(const Problem& p, const Tensors& t, std::int64_t image, std::int64_t first)
      : activated(p.fusion != Fusion::none) {
    const unsigned width = static_cast<unsigned>(p.channels) / static_cast<unsigned>(p.groups);
    const float factor = halves<T>(p) ? 0.5f : 1.0f;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const std::int64_t group = image * p.groups + static_cast<unsigned>(first + i) / width;
      const Channel c = channel_of<T>(p, t, t.mean[group], t.rstd[group], image, first + i);
      a[i] = factor * c.rstd * c.a;
      b[i] = factor * c.b - a[i] * c.mean;
    }
  }
  // x and dv, or twice that, of what `fetch` brought.
  __device__ __forceinline__ void take(const Row<T, kLanes>& row, float (&x)[kLanes], float (&dv)[kLanes]) const {
    unpack<T>(row.x, x);
    unpack<T>(row.dy, dv);
    if (!activated) return;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float v = x[i] * a[i] + b[i];
      if constexpr (sizeof(T) == 2)
        dv[i] = gradient<T, true>(dv[i], v);
      else
        dv[i] = silu_gradient(dv[i], v);
    }
  }
};

// Calls body(offset, row) with the thread's rows of a slab, each one's loads under way while the one before is used.
template <class T, int kLanes, class Body>
__device__ __forceinline__ void each_row(const Problem& p, const Tensors& t, const SlabPosition& at, int step,
                                         const Body& body) {
  const auto offset_of = [&](std::int64_t s) { return (at.first_row + s) * p.channels + at.channel; };
  Row<T, kLanes> next{};
  if (at.row < at.rows) next = fetch<T, kLanes>(t, offset_of(at.row));
#pragma unroll 1
  for (std::int64_t s = at.row; s < at.rows; s += step) {
    const Row<T, kLanes> row = next;
    if (s + step < at.rows) next = fetch<T, kLanes>(t, offset_of(s + step));
    body(offset_of(s), row);
  }
}

// One block per (image, group): adds slabs' sums of dv and dv x, and leaves of_x and rest, by which dx = a dv + of_x x
// + rest.
template <class T>
__global__ void __launch_bounds__(kGroupThreads) group_kernel(Problem p, Tensors t, std::int64_t slabs, Work work) {
  constexpr int kWarps = kGroupThreads / 32;
  __shared__ float shared[2][kWarps];
  const unsigned groups = static_cast<unsigned>(p.groups), width = static_cast<unsigned>(p.channels) / groups;
  const std::int64_t image = blockIdx.x / groups;
  const std::int64_t first = blockIdx.x % groups * width;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const float mean = t.mean[blockIdx.x], rstd = t.rstd[blockIdx.x], factor = halves<T>(p) ? 0.5f : 1.0f;
  float dh = 0, dh_xh = 0;  // dh: times rstd
  for (std::int64_t c = first + warp; c < first + width; c += kWarps) {
    float sum = 0, sum_x = 0;
#pragma unroll 8
    for (std::int64_t slab = lane; slab < slabs; slab += 32) {
      const float* const partial = work.partials + (image * slabs + slab) * 2 * p.channels + c;
      sum += partial[0];
      sum_x += partial[p.channels];
    }
    sum = factor * lane_sum(sum);
    const float sum_xh = rstd * (factor * lane_sum(sum_x) - mean * sum),
                a = rstd * channel_of<T>(p, t, mean, rstd, image, c).a;
    dh += a * sum;
    dh_xh += a * sum_xh;
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
  const float of_x = -rstd * share * dh_xh;
  work.of_x[blockIdx.x] = of_x;
  work.rest[blockIdx.x] = -share * dh - of_x * mean;
}

template <class T, int kLanes>
__global__ void __launch_bounds__(kSlabThreads, 3)
    dx_kernel(Problem p, Tensors t, SlabPlan plan, Work work, float residual_scale) {
  ptx::griddepcontrol_wait();
  const SlabPosition at = groupnorm::slab_position(p.hw, plan, kLanes);
  if (at.channel >= p.channels) return;
  const Channels<T, kLanes> channels(p, t, blockIdx.z, at.channel);
  const unsigned width = static_cast<unsigned>(p.channels) / static_cast<unsigned>(p.groups);
  float of_x[kLanes], rest[kLanes];
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const std::int64_t group = blockIdx.z * p.groups + static_cast<unsigned>(at.channel + i) / width;
    of_x[i] = work.of_x[group];
    rest[i] = work.rest[group];
  }
  each_row<T, kLanes>(p, t, at, plan.tile_rows, [&](std::int64_t offset, const Row<T, kLanes>& row) {
    float x[kLanes], dx[kLanes], residual[kLanes] = {};
    if (t.residual != nullptr) groupnorm::load_lanes<T>(static_cast<const T*>(t.residual) + offset, residual);
    channels.take(row, x, dx);
#pragma unroll
    for (int i = 0; i < kLanes; ++i)
      dx[i] = channels.a[i] * dx[i] + (x[i] * of_x[i] + rest[i]) + residual_scale * residual[i];
    groupnorm::store_lanes<T>(static_cast<T*>(t.dx) + offset, dx);
  });
}

inline LaunchShape slab_shape(const Problem& p, const SlabPlan& plan, int threads, const LaunchContext& context) {
  const dim3 grid(static_cast<unsigned>(plan.slabs), static_cast<unsigned>(plan.tiles), static_cast<unsigned>(p.n));
  return {.grid = grid, .block = static_cast<unsigned>(threads), .programmatic = context.programmatic_launch};
}

// All launches: sums(work) leaves partial sums.
template <class T, int kLanes, class Sums>
Status launch_slabs(const Problem& p, const Tensors& t, const SlabPlan& plan, const Scratch& scratch,
                    const LaunchContext& context, const Sums& sums) {
  const Work work(p, static_cast<float*>(scratch.workspace));
  Status status = sums(work);
  if (status.ok())
    status = launch_kernel("groupnorm_backward group_kernel", group_kernel<T>,
                           {.grid = static_cast<unsigned>(p.n * p.groups),
                            .block = kGroupThreads,
                            .programmatic = context.programmatic_launch},
                           context.stream, p, t, plan.slabs, work);
  if (status.ok())
    status = launch_kernel("groupnorm_backward dx_kernel", dx_kernel<T, kLanes>,
                           slab_shape(p, plan, plan.threads(), context), context.stream, p, t, plan, work,
                           static_cast<float>(p.residual_scale));
  return launch_parameters(status, "groupnorm_backward parameters_kernel", p.n, p.channels, work.sums, t.dgamma,
                           t.dbeta, context);
}

}  // namespace
}  // namespace noisefloor::groupnorm_backward
