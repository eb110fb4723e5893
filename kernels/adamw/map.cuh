// The stream of adamw (kernels/device/stream.cuh).
#pragma once

#include "kernels/adamw/adamw.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/stream.cuh"

namespace noisefloor::adamw {

template <class T, bool kEma>
struct UpdateMap : FlatInputs<kEma ? 5 : 4> {
  static constexpr int kCount = kEma ? 5 : 4, kUnroll = 2;
  Tensors t;
  Constants constants;

  UpdateMap(const Problem& p, const Tensors& tensors) : t(tensors), constants(constants_of(p)) {
    const void* const all[] = {t.g, t.p, t.m, t.v, t.ema};
    for (int i = 0; i < kCount; ++i) this->inputs[i] = all[i];
    this->vectors = vectors_of<float>(p.elements);
  }
  __device__ __forceinline__ void apply(std::uint32_t vector, const uint4 (&bits)[kCount]) const {
    const float4 numbers = __ldg(reinterpret_cast<const float4*>(t.step));
    const Step step{numbers.x, numbers.y, numbers.z, numbers.w, __ldg(t.grad_scale)};
    float g[4], p[4], m[4], v[4], ema[4] = {};
    unpack_vector<float>(bits[0], g);
    unpack_vector<float>(bits[1], p);
    unpack_vector<float>(bits[2], m);
    unpack_vector<float>(bits[3], v);
    if constexpr (kEma) unpack_vector<float>(bits[4], ema);
#pragma unroll
    for (int i = 0; i < 4; ++i) update(constants, step, g[i], p[i], m[i], v[i], ema[i]);
    store_stream<float>(t.p, vector, p);
    store_stream<float>(t.m, vector, m);
    store_stream<float>(t.v, vector, v);
    if constexpr (kEma) store_stream<float>(t.ema, vector, ema);
    if (t.copy == nullptr) return;
    if constexpr (sizeof(T) == 4)
      store_stream<float>(t.copy, vector, p);
    else
      static_cast<uint2*>(t.copy)[vector] = make_uint2(pack_pair<T>(p[0], p[1]), pack_pair<T>(p[2], p[3]));
  }
};

template <class Run>
Status with_map(const Problem& p, DType dtype, const Tensors& t, const Run& run) {
  return with_type(dtype,
                   [&]<class T>(T) { return p.ema ? run(UpdateMap<T, true>(p, t)) : run(UpdateMap<T, false>(p, t)); });
}

}  // namespace noisefloor::adamw
