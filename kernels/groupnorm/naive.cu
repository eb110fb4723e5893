// The definition, written down: one block per (image, group), three passes over the group in memory: mean, variance,
// output.
//
// Threads: 256; thread i takes elements i, i + 256, ... of the group, counted along channels, then rows.
//
// Shared memory: one float per thread for the sums, 1 KiB.
//
// Bound: memory, and far from it: a group's channels are a few bytes of each row, so most of every 32-byte sector
// fetched is wasted, three times over; and n * groups blocks do not fill the GPU at small batch.
//
// Requirements: none; any channels, any groups; fp32, bf16 or fp16.
//
// Numerics: fp32, two passes (deviations from the mean are squared, so a mean far off zero costs no bits).
//
// Source: original.
#include "kernels/core/cuda_status.h"
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/groupnorm/device.cuh"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {
namespace {

constexpr int kThreads = 256;

// Mean and variance of a group from given statistics, in two passes over them as over the elements themselves.
__device__ void merge_given(const Problem& p, const Tensors& t, std::int64_t image, std::int64_t first_channel,
                            float* shared, float& mean, float& variance) {
  const std::int64_t width = p.channels / p.groups;
  const std::int64_t count = p.given_slabs() * width;
  const auto size = static_cast<float>(p.hw * width);
  const std::int64_t corner = image * p.given_slabs() * p.channels + first_channel;
  const auto place = [&](std::int64_t i) { return corner + i / width * p.channels + i % width; };
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads)
    sum += static_cast<float>(p.given_rows(i / width)) * t.slab_mean[place(i)];
  mean = block_sum<kThreads>(sum, shared) / size;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) {
    const float deviation = t.slab_mean[place(i)] - mean;
    squares += t.slab_m2[place(i)] + static_cast<float>(p.given_rows(i / width)) * deviation * deviation;
  }
  variance = block_sum<kThreads>(squares, shared) / size;
}

// Element `offset` of what is normalised.
template <class T, bool kSkip>
__device__ __forceinline__ float element(const Problem& p, const Tensors& t, std::int64_t offset) {
  const T* x = static_cast<const T*>(t.x);
  if constexpr (kSkip) {
    const std::int64_t own = p.channels - p.skip_channels;
    const std::int64_t pixel = offset / p.channels, channel = offset % p.channels;
    return to_float(channel < own ? x[pixel * own + channel]
                                  : static_cast<const T*>(t.skip)[pixel * p.skip_channels + channel - own]);
  } else {
    return to_float(x[offset]);
  }
}

// Mean and variance of a group.
template <class T, bool kSkip>
__device__ __forceinline__ void group_statistics(const Problem& p, const Tensors& t, std::int64_t image,
                                                 std::int64_t group, float* shared, float& mean, float& variance) {
  const std::int64_t width = p.channels / p.groups;
  const std::int64_t size = p.hw * width;
  const std::int64_t first = image * p.hw * p.channels + group * width;
  if (p.given()) {
    merge_given(p, t, image, group * width, shared, mean, variance);
  } else {
    float sum = 0;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads)
      sum += element<T, kSkip>(p, t, first + i / width * p.channels + i % width);
    mean = block_sum<kThreads>(sum, shared) / static_cast<float>(size);

    float squares = 0;
    for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
      const float deviation = element<T, kSkip>(p, t, first + i / width * p.channels + i % width) - mean;
      squares += deviation * deviation;
    }
    variance = block_sum<kThreads>(squares, shared) / static_cast<float>(size);
  }
}

// fusion(norm) of one value; `channel` of all.
template <class T>
__device__ __forceinline__ float normed(const Problem& p, const Tensors& t, float value, float mean, float rstd,
                                        std::int64_t channel, std::int64_t image, std::int64_t scale_shift_stride) {
  value = (value - mean) * rstd * to_float(static_cast<const T*>(t.gamma)[channel]) +
          to_float(static_cast<const T*>(t.beta)[channel]);
  if (p.fusion == Fusion::silu_scale_shift) {
    const std::int64_t row = image * scale_shift_stride + channel;
    value =
        value * (1.0f + to_float(static_cast<const T*>(t.scale)[row])) + to_float(static_cast<const T*>(t.shift)[row]);
  }
  return p.fusion == Fusion::none ? value : silu(value);
}

template <class T, bool kSkip>
__global__ void __launch_bounds__(kThreads) naive_kernel(Problem p, Tensors t, std::int64_t scale_shift_stride) {
  __shared__ float shared[kThreads];
  const std::int64_t image = blockIdx.x / p.groups;
  const std::int64_t group = blockIdx.x % p.groups;
  const std::int64_t width = p.channels / p.groups;
  const std::int64_t size = p.hw * width;
  const std::int64_t first = image * p.hw * p.channels + group * width;
  T* y = static_cast<T*>(t.y);

  float mean = 0, variance = 0;
  group_statistics<T, kSkip>(p, t, image, group, shared, mean, variance);
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(p.eps));

  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    const std::int64_t channel = group * width + i % width;
    const std::int64_t offset = first + i / width * p.channels + i % width;
    y[offset] =
        from_float<T>(normed<T>(p, t, element<T, kSkip>(p, t, offset), mean, rstd, channel, image, scale_shift_stride));
  }
  if (p.stats && threadIdx.x == 0) {
    t.mean[blockIdx.x] = mean;
    t.rstd[blockIdx.x] = rstd;
  }
}

// The third pass over 2x2 blocks: means of what naive_kernel would write, and of x.
template <class T>
__global__ void __launch_bounds__(kThreads) naive_down_kernel(Problem p, Tensors t) {
  __shared__ float shared[kThreads];
  const std::int64_t image = blockIdx.x / p.groups;
  const std::int64_t group = blockIdx.x % p.groups;
  const std::int64_t width = p.channels / p.groups;
  const T* x = static_cast<const T*>(t.x);

  float mean = 0, variance = 0;
  group_statistics<T, false>(p, t, image, group, shared, mean, variance);
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(p.eps));

  for (std::int64_t i = threadIdx.x; i < p.y_pixels() * width; i += kThreads) {
    const std::int64_t channel = group * width + i % width;
    const std::int64_t pixel = image * p.y_pixels() + i / width;
    const std::int64_t first = p.first_of_four(pixel);
    float sum = 0, x_sum = 0;
    for (int corner = 0; corner < 4; ++corner) {
      const float value = to_float(x[(first + corner / 2 * p.down_w + corner % 2) * p.channels + channel]);
      x_sum += value;
      sum += to_float(from_float<T>(normed<T>(p, t, value, mean, rstd, channel, image, p.scale_shift_stride())));
    }
    static_cast<T*>(t.y)[pixel * p.channels + channel] = from_float<T>(0.25f * sum);
    static_cast<T*>(t.x_down)[pixel * p.channels + channel] = from_float<T>(0.25f * x_sum);
  }
  if (p.stats && threadIdx.x == 0) {
    t.mean[blockIdx.x] = mean;
    t.rstd[blockIdx.x] = rstd;
  }
}

// Two passes over the group, and its channels' coefficients in the place of the third.
template <class T>
__global__ void __launch_bounds__(kThreads) naive_coefficients_kernel(Problem p, Tensors t) {
  __shared__ float shared[kThreads];
  const std::int64_t image = blockIdx.x / p.groups;
  const std::int64_t group = blockIdx.x % p.groups;
  const std::int64_t width = p.channels / p.groups;
  float mean = 0, variance = 0;
  group_statistics<T, false>(p, t, image, group, shared, mean, variance);
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(p.eps));
  auto* coefficients = static_cast<float*>(t.y);
  for (std::int64_t c = group * width + threadIdx.x; c < (group + 1) * width; c += kThreads) {
    const float2 ab = channel_coefficients<T>(p, t, mean, rstd, c, image * p.scale_shift_stride() + c);
    coefficients[image * 2 * p.channels + c] = ab.x;
    coefficients[(image * 2 + 1) * p.channels + c] = ab.y;
  }
  if (p.stats && threadIdx.x == 0) {
    t.mean[blockIdx.x] = mean;
    t.rstd[blockIdx.x] = rstd;
  }
}

template <class T>
Status launch(const Problem& p, const Tensors& t, const LaunchContext& context) {
  const auto blocks = static_cast<unsigned>(p.n * p.groups);
  if (p.coefficients)
    naive_coefficients_kernel<T><<<blocks, kThreads, 0, context.stream>>>(p, t);
  else if (p.down())
    naive_down_kernel<T><<<blocks, kThreads, 0, context.stream>>>(p, t);
  else if (p.skip_channels > 0)
    naive_kernel<T, true><<<blocks, kThreads, 0, context.stream>>>(p, t, p.scale_shift_stride());
  else
    naive_kernel<T, false><<<blocks, kThreads, 0, context.stream>>>(p, t, p.scale_shift_stride());
  return launch_status("groupnorm naive");
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& tensors, const Scratch&,
                    const LaunchContext& context) {
  const Tensors t = unpacked(p, dtype, tensors);
  return with_type(dtype, [&]<class T>(T) { return launch<T>(p, t, context); });
}

}  // namespace noisefloor::groupnorm
