// The coefficients of given statistics in one small launch: what is left of groupnorm between a convolution that leaves
// statistics and one that normalises what it reads. A block has a bundle of an image's groups (finish_plan.h).
//
// Better than tiled's finish_kernel: 16-byte loads, four slabs of each thread in flight beside the parameters, sums
// that meet in registers, and no gap before or behind it: it honours programmatic dependent launch.
//
// Requires: bf16 or fp16; channels divisible by 4; groups of 2 channels or more, a bundle of which has 128 at most;
// n * channels < 2^31, half that with packed scale and shift.
// Bound: latency, of the launch, of one read from L2 and of two reductions.
// Numerics: fp32; moments about the mean of the group's first channel in the image's first slab, so that merging is
// adding, in a fixed order. Source: original; Chan, Golub and LeVeque (1979) for the sums.
#include "kernels/device/block_sum.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/device.cuh"
#include "kernels/groupnorm/finish_plan.h"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/prefetch.cuh"

namespace noisefloor::groupnorm {
namespace {

constexpr int kTeam = 16;  // lanes that merge a group's warps
static_assert(kTeam >= kFinishMaxWarps);

struct FinishArguments {
  Tensors t;
  int channels, groups, width, scale_shift_stride;
  int slabs, part_slabs;  // of an image, and of a quarter where there are quarters
  float last_rows;        // of the last slab of each
  float size_inverse, eps;
  FinishPlan plan;
};

// Four parameters of T as floats; 8-byte aligned.
template <class T>
__device__ __forceinline__ uint2 load_four(const void* base, int index) {
  return *reinterpret_cast<const uint2*>(static_cast<const T*>(base) + index);
}
template <class T>
__device__ __forceinline__ void unpack_four(uint2 bits, float (&out)[4]) {
  unpack_pair<T>(bits.x, out[0], out[1]);
  unpack_pair<T>(bits.y, out[2], out[3]);
}

// Adds across a warp the lanes whose numbers differ by multiples of `step`, a power of two.
__device__ __forceinline__ float2 sum_lanes(float2 value, int width, int step) {
  for (int mask = width / 2; mask >= step; mask /= 2) {
    value.x += __shfl_xor_sync(0xffffffffu, value.x, mask);
    value.y += __shfl_xor_sync(0xffffffffu, value.y, mask);
  }
  return value;
}

// 1. Each thread sums its column (four channels) over its slabs, rows * delta and M2 + rows * delta^2 of each channel,
// delta from the origin of the channel's group, and adds those of a group: a column has one or two. 2. The lanes of a
// warp with the same column are added by shuffles, the warps through shared memory, by 16 lanes for each group, which
// leave mean and rstd. 3. The first `pitch` threads write the coefficients of their columns.
template <class T>
__global__ void __launch_bounds__(32 * kFinishMaxWarps) finish_given_kernel(const __grid_constant__ FinishArguments a) {
  __shared__ float2 partials[kFinishMaxWarps][2 * kFinishMaxColumns];  // a column's first group, then its second
  __shared__ float origins[kFinishMaxBundle];
  __shared__ float2 finals[kFinishMaxBundle];  // mean, rstd
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread & (a.plan.pitch - 1);
  const int shift_of_row = 31 - __clz(a.plan.pitch);
  const int row = thread >> shift_of_row;
  const int rows = static_cast<int>(blockDim.x) >> shift_of_row;
  const bool inside = column < a.plan.columns;
  const int image = static_cast<int>(blockIdx.y);
  const int base = static_cast<int>(blockIdx.x) * a.plan.columns * kFinishLanes;  // the bundle's first channel
  const int channel = base + column * kFinishLanes;
  const int at = image * a.scale_shift_stride + channel;
  const bool scale_shift = a.t.scale != nullptr;
  const bool writer = inside && row == 0;

  // What touches nothing but parameters' L2 lines comes before the wait (ptx_sm90a). The launch behind this one may
  // take its place on the SMs from the start: it waits for this one's end, and so for all before it.
  ptx::griddepcontrol_launch_dependents();
  if (writer) {
    ptx::prefetch_l2(static_cast<const T*>(a.t.gamma) + channel);
    ptx::prefetch_l2(static_cast<const T*>(a.t.beta) + channel);
    if (scale_shift) {
      ptx::prefetch_l2(static_cast<const T*>(a.t.scale) + at);
      ptx::prefetch_l2(static_cast<const T*>(a.t.shift) + at);
    }
  }
  // Groups of the column's first and last channel, in the bundle, and how many channels lie in the first.
  const int low = column * kFinishLanes / a.width;
  const int high = (column * kFinishLanes + kFinishLanes - 1) / a.width;
  const int split = min((low + 1) * a.width - column * kFinishLanes, kFinishLanes);
  const std::int64_t corner = static_cast<std::int64_t>(image) * a.slabs * a.channels + base;
  ptx::griddepcontrol_wait();

  uint2 gamma{}, beta{}, scale{}, shift{};
  if (writer) {
    gamma = load_four<T>(a.t.gamma, channel);
    beta = load_four<T>(a.t.beta, channel);
    if (scale_shift) {
      scale = load_four<T>(a.t.scale, at);
      shift = load_four<T>(a.t.shift, at);
    }
  }
  float2 first{}, second{};  // of the column's groups: sums of delta, and of its squares and M2
  if (inside) {
    const float low_origin = a.t.slab_mean[corner + low * a.width];
    const float high_origin = a.t.slab_mean[corner + high * a.width];
    const std::int64_t offset = corner + column * kFinishLanes;
    float sum[4] = {}, squares[4] = {};
#pragma unroll 1
    for (int begin = row; begin < a.slabs; begin += kFinishFlight * rows) {
      float4 mean[kFinishFlight], m2[kFinishFlight];
#pragma unroll
      for (int k = 0; k < kFinishFlight; ++k) {
        const int slab = begin + k * rows;
        if (slab >= a.slabs) continue;
        const std::int64_t place = offset + static_cast<std::int64_t>(slab) * a.channels;
        mean[k] = *reinterpret_cast<const float4*>(a.t.slab_mean + place);
        m2[k] = *reinterpret_cast<const float4*>(a.t.slab_m2 + place);
      }
#pragma unroll
      for (int k = 0; k < kFinishFlight; ++k) {
        const int slab = begin + k * rows;
        if (slab >= a.slabs) continue;
        const float weight = (slab + 1) % a.part_slabs == 0 ? a.last_rows : static_cast<float>(kGivenSlabRows);
        const float means[4] = {mean[k].x, mean[k].y, mean[k].z, mean[k].w};
        const float m2s[4] = {m2[k].x, m2[k].y, m2[k].z, m2[k].w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float delta = means[i] - (i < split ? low_origin : high_origin);
          sum[i] += weight * delta;
          squares[i] += m2s[i] + weight * delta * delta;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      first.x += i < split ? sum[i] : 0.0f;
      first.y += i < split ? squares[i] : 0.0f;
      second.x += i < split ? 0.0f : sum[i];
      second.y += i < split ? 0.0f : squares[i];
    }
    // A group's origin, from the column in which it begins.
    if (row == 0 && low * a.width == column * kFinishLanes) origins[low] = low_origin;
    if (row == 0 && high != low) origins[high] = high_origin;
  }
  first = sum_lanes(first, 32, a.plan.pitch);
  second = sum_lanes(second, 32, a.plan.pitch);
  if (inside && thread % 32 < a.plan.pitch) {
    partials[thread / 32][2 * column] = first;
    partials[thread / 32][2 * column + 1] = second;
  }
  __syncthreads();

  const int lane = thread % kTeam;
#pragma unroll 1
  for (int j = thread / kTeam; j - thread / kTeam < a.plan.bundle; j += static_cast<int>(blockDim.x) / kTeam) {
    float2 total{};
    if (j < a.plan.bundle && lane < a.plan.warps) {
      const int begin = j * a.width;
#pragma unroll 4
      for (int i = begin / kFinishLanes; i * kFinishLanes < begin + a.width; ++i)
        total += partials[lane][2 * i + (i * kFinishLanes < begin ? 1 : 0)];
    }
    total = sum_lanes(total, kTeam, 1);
    if (j >= a.plan.bundle || lane > 0) continue;
    const float away = total.x * a.size_inverse;
    const float mean = origins[j] + away;
    const float rstd = rsqrtf(fmaxf(total.y - total.x * away, 0.0f) * a.size_inverse + a.eps);
    finals[j] = {mean, rstd};
    if (a.t.mean != nullptr) {
      const int group = image * a.groups + static_cast<int>(blockIdx.x) * a.plan.bundle + j;
      a.t.mean[group] = mean;
      a.t.rstd[group] = rstd;
    }
  }
  __syncthreads();
  if (!writer) return;
  float ca[4], cb[4];
  unpack_four<T>(gamma, ca);
  unpack_four<T>(beta, cb);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 group = finals[i < split ? low : high];
    ca[i] *= group.y;
    cb[i] -= group.x * ca[i];
  }
  if (scale_shift) {
    float more[4], added[4];
    unpack_four<T>(scale, more);
    unpack_four<T>(shift, added);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      ca[i] *= 1.0f + more[i];
      cb[i] = cb[i] * (1.0f + more[i]) + added[i];
    }
  }
  float* out = static_cast<float*>(a.t.y) + static_cast<std::int64_t>(image) * 2 * a.channels + channel;
  *reinterpret_cast<float4*>(out) = make_float4(ca[0], ca[1], ca[2], ca[3]);
  *reinterpret_cast<float4*>(out + a.channels) = make_float4(cb[0], cb[1], cb[2], cb[3]);
}

}  // namespace

Status launch_finish_sm90a(const Problem& p, DType dtype, const Tensors& t, const LaunchContext& context) {
  const auto plan = plan_finish(p, context.device->sm_count);
  if (!plan) return failure(StatusCode::unsupported_problem, "groupnorm ptx_sm90a");
  FinishArguments a{};
  a.t = unpacked(p, dtype, t);
  a.channels = static_cast<int>(p.channels);
  a.groups = static_cast<int>(p.groups);
  a.width = static_cast<int>(p.channels_per_group());
  a.scale_shift_stride = static_cast<int>(p.scale_shift_stride());
  a.slabs = static_cast<int>(p.given_slabs());
  a.part_slabs = static_cast<int>(p.given_slabs() / p.quarters());
  a.last_rows = static_cast<float>(p.given_rows(p.given_slabs() - 1));
  a.size_inverse = static_cast<float>(1.0 / static_cast<double>(p.group_size()));
  a.eps = static_cast<float>(p.eps);
  a.plan = *plan;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(p.groups / plan->bundle), static_cast<unsigned>(p.n)),
                          .block = static_cast<unsigned>(32 * plan->warps),
                          .programmatic = context.programmatic_launch};
  const auto kernel = dtype == DType::bf16 ? finish_given_kernel<__nv_bfloat16> : finish_given_kernel<__half>;
  return launch_kernel("groupnorm ptx_sm90a", kernel, shape, context.stream, a);
}

}  // namespace noisefloor::groupnorm
