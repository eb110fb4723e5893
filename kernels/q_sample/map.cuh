// The stream of q_sample (kernels/device/stream.cuh): one vector of x0, and of given noise, of one image.
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/divider.h"
#include "kernels/device/short_normals.cuh"
#include "kernels/device/stream.cuh"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::q_sample {

template <class T, bool kDrawn>
struct Map : FlatInputs<kDrawn ? 1 : 2> {
  const float2* levels;
  void* x_t;
  void* noise_out;    // null: not kept
  Divider per_image;  // vectors
  NoiseStream noise;

  Map(const Problem& p, const Tensors& t) {
    this->inputs[0] = t.x0;
    if constexpr (!kDrawn) this->inputs[1] = t.noise;
    const auto vectors = static_cast<std::uint32_t>(p.elements / kVectorLanes<T>);
    this->vectors = vectors * static_cast<std::uint32_t>(p.batch);
    per_image = Divider(vectors);
    levels = reinterpret_cast<const float2*>(t.levels);
    x_t = t.x_t;
    noise_out = t.noise_out;
    noise = noise_stream(p);
  }

  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[Map::kInputs]) const {
    constexpr int kLanes = kVectorLanes<T>;
    const std::uint32_t image = vector / per_image;
    const float2 level = __ldg(levels + image);
    float x[kLanes], z[kLanes];
    unpack_vector<T>(bits[0], x);
    if constexpr (kDrawn)
      draw_vector(noise, image, vector - image * per_image.divisor(), z);
    else
      unpack_vector<T>(bits[1], z);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) x[i] = level.x * x[i] + level.y * z[i];
    store_stream<T>(x_t, vector, x);
    if (kDrawn && noise_out) store_stream<T>(noise_out, vector, z);
  }
};

// Calls run(Map) with the map of the problem.
template <class Run>
Status with_map(const Problem& p, DType dtype, const Tensors& t, const Run& run) {
  return with_type(
      dtype, [&]<class T>(T) { return p.noise == Noise::drawn ? run(Map<T, true>(p, t)) : run(Map<T, false>(p, t)); });
}

}  // namespace noisefloor::q_sample
