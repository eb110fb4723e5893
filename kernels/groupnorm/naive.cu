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
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
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
  value =
      (value - mean) * rstd * affine<T>(p.fp32_affine, t.gamma, channel) + affine<T>(p.fp32_affine, t.beta, channel);
  if (p.fusion == Fusion::silu_scale_shift) {
    const std::int64_t row = image * scale_shift_stride + channel;
    value =
        value * (1.0f + to_float(static_cast<const T*>(t.scale)[row])) + to_float(static_cast<const T*>(t.shift)[row]);
  }
  return p.fusion == Fusion::none ? value : silu(value);
}

// What the third pass writes: y of x, or of x and skip; means of 2x2 blocks of what y would be, and of x; or, without
// the pass, the coefficients of the group's channels.
enum class Output { y, y_of_two, means, coefficients };

template <class T, Output kOutput>
__global__ void __launch_bounds__(kThreads) naive_kernel(Problem p, Tensors t, std::int64_t scale_shift_stride) {
  __shared__ float shared[kThreads];
  constexpr bool kSkip = kOutput == Output::y_of_two;
  const std::int64_t image = blockIdx.x / p.groups;
  const std::int64_t group = blockIdx.x % p.groups;
  const std::int64_t width = p.channels / p.groups;
  float mean = 0, variance = 0;
  group_statistics<T, kSkip>(p, t, image, group, shared, mean, variance);
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(p.eps));

  if constexpr (kOutput == Output::coefficients) {
    auto* coefficients = static_cast<float*>(t.y);
    for (std::int64_t c = group * width + threadIdx.x; c < (group + 1) * width; c += kThreads) {
      const float2 ab = channel_coefficients<T>(p, t, mean, rstd, c, image * scale_shift_stride + c);
      coefficients[image * 2 * p.channels + c] = ab.x;
      coefficients[(image * 2 + 1) * p.channels + c] = ab.y;
    }
  } else {
    const std::int64_t pixels = kOutput == Output::means ? p.y_pixels() : p.hw;
    const std::int64_t begin = image * pixels * p.channels + group * width;
    for (std::int64_t i = threadIdx.x; i < pixels * width; i += kThreads) {
      const std::int64_t channel = group * width + i % width;
      const std::int64_t offset = begin + i / width * p.channels + i % width;  // in y
      const auto y = [&](float value) {
        return from_float<T>(normed<T>(p, t, value, mean, rstd, channel, image, scale_shift_stride));
      };
      if constexpr (kOutput == Output::means) {
        const std::int64_t first = p.first_of_four(image * pixels + i / width);
        float sum = 0, x_sum = 0;
        for (int corner = 0; corner < 4; ++corner) {
          const std::int64_t row = first + corner / 2 * p.down_w + corner % 2;
          const float value = element<T, false>(p, t, row * p.channels + channel);
          x_sum += value;
          sum += to_float(y(value));
        }
        static_cast<T*>(t.y)[offset] = from_float<T>(0.25f * sum);
        static_cast<T*>(t.x_down)[offset] = from_float<T>(0.25f * x_sum);
      } else {
        static_cast<T*>(t.y)[offset] = y(element<T, kSkip>(p, t, offset));
      }
    }
  }
  if (p.stats && threadIdx.x == 0) {
    t.mean[blockIdx.x] = mean;
    t.rstd[blockIdx.x] = rstd;
  }
}

template <class T>
Status launch(const Problem& p, const Tensors& t, const LaunchContext& context) {
  const auto kernel = p.coefficients        ? naive_kernel<T, Output::coefficients>
                      : p.down()            ? naive_kernel<T, Output::means>
                      : p.skip_channels > 0 ? naive_kernel<T, Output::y_of_two>
                                            : naive_kernel<T, Output::y>;
  return launch_kernel("groupnorm naive", kernel, {.grid = static_cast<unsigned>(p.n * p.groups), .block = kThreads},
                       context.stream, p, t, p.scale_shift_stride());
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& tensors, const Scratch&,
                    const LaunchContext& context) {
  const Tensors t = unpacked(p, dtype, tensors);
  return with_type(dtype, [&]<class T>(T) { return launch<T>(p, t, context); });
}

}  // namespace noisefloor::groupnorm
