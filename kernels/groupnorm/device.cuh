// What the GPU variants share: merging of statistics, SiLU, and the one multiply-add per element that the op comes down
// to.
#pragma once

#include "kernels/core/vector.cuh"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

// Mean and M2 (sum of squared deviations from the mean) of `count` numbers.
struct Moments {
  float count;
  float mean;
  float m2;
};

// Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances" (1979).
__device__ __forceinline__ Moments merge(const Moments& a, const Moments& b) {
  const float count = a.count + b.count;
  if (!(count > 0)) return {0, 0, 0};
  const float share = b.count / count;
  const float delta = b.mean - a.mean;
  return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

// exp(-v) overflows to infinity below v = -88, where the quotient is the limit, -0.
__device__ __forceinline__ float silu(float v) {
  return __fdividef(v, 1.0f + __expf(-v));
}

// y = fusion(x * a + b): the coefficients of one channel of one image. `row` is image * channels + channel.
template <class T>
__device__ __forceinline__ float2 channel_coefficients(const Problem& p, const Tensors& t, float mean, float rstd,
                                                       std::int64_t channel, std::int64_t row) {
  float a = rstd * to_float(static_cast<const T*>(t.gamma)[channel]);
  float b = to_float(static_cast<const T*>(t.beta)[channel]) - mean * a;
  if (t.scale != nullptr) {
    const float scale = 1.0f + to_float(static_cast<const T*>(t.scale)[row]);
    a *= scale;
    b = b * scale + to_float(static_cast<const T*>(t.shift)[row]);
  }
  return {a, b};
}

}  // namespace noisefloor::groupnorm
