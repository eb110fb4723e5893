// The stream of edm_precondition (kernels/device/stream.cuh): one vector of x, and of f, of one image.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/stream.cuh"
#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {

template <class T, Side kSide>
struct Map : FlatInputs<kSide == Side::output ? 2 : 1> {
  const float* sigma;
  void* y;
  float* c_noise;
  Divider per_image;  // vectors
  float sigma_data;

  Map(const Problem& p, const Tensors& t) {
    this->inputs[0] = t.x;
    if constexpr (kSide == Side::output) this->inputs[1] = t.f;
    const auto vectors = static_cast<std::uint32_t>(p.elements / kVectorLanes<T>);
    this->vectors = vectors * static_cast<std::uint32_t>(p.batch);
    per_image = Divider(vectors);
    sigma = t.sigma;
    y = t.y;
    c_noise = t.c_noise;
    sigma_data = static_cast<float>(p.sigma_data);
  }

  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[Map::kInputs]) const {
    constexpr int kLanes = kVectorLanes<T>;
    const std::uint32_t image = vector / per_image;
    const float level = __ldg(sigma + image);
    Scales scale = scales(kSide == Side::gradient ? Side::output : kSide, level, sigma_data);
    if constexpr (kSide == Side::gradient) scale.x = scale.f;
    float x[kLanes];
    unpack_vector<T>(bits[0], x);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x[i] *= scale.x;
    if constexpr (kSide == Side::output) {
      float f[kLanes];
      unpack_vector<T>(bits[1], f);
#pragma unroll
      for (int i = 0; i < kLanes; ++i) x[i] += scale.f * f[i];
    }
    store_stream<T>(y, vector, x);
    if (kSide == Side::input && vector == image * per_image.divisor()) c_noise[image] = logf(level) / 4;
  }
};

// Calls run(Map) with the map of the problem.
template <class Run>
Status with_map(const Problem& p, DType dtype, const Tensors& t, const Run& run) {
  return with_type(dtype, [&]<class T>(T) {
    if (p.side == Side::gradient) return run(Map<T, Side::gradient>(p, t));
    return p.side == Side::input ? run(Map<T, Side::input>(p, t)) : run(Map<T, Side::output>(p, t));
  });
}

}  // namespace noisefloor::edm_precondition
