// q_sample with drawn noise in 16 bits, where instructions are the limit: a block works on one image, so that nothing
// is divided and Philox starts from what the image's blocks share; and normal numbers are made by fewer instructions
// than box_muller's, to an accuracy that 16 bits do not show.
#pragma once

#include "kernels/core/dispatch.cuh"
#include "kernels/core/image_noise.h"
#include "kernels/core/stream.cuh"
#include "kernels/q_sample/launchers.h"

namespace noisefloor::q_sample {

inline constexpr int kDrawnThreads = 256;
inline constexpr int kDrawnVectors = 4;  // of a thread, all loaded first

struct DrawnArguments {
  const char* x0;
  const float2* levels;
  char *x_t, *noise_out;
  NoiseStream noise;
  std::uint32_t vectors, tiles;  // of an image
};

// -log2(u) of the uniform numbers of four words. lg2.approx has an absolute error of about 2^-21.4 near 1; from
// 1 - 2^-9 on, one vector in 128, the series takes over (minus_two_log: from 1 - 2^-5). Below, the root has an error of
// at most 3e-6, and for a weak branch per vector four series are saved.
__device__ __forceinline__ void minus_log2(const std::uint32_t (&words)[4], float (&result)[4]) {
  constexpr float kEdge = 1 - 0x1p-9f;
  float u[4];
  bool near = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    u[i] = philox_uniform(words[i]);
    float log2;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(u[i]));
    result[i] = -log2;
    near |= u[i] > kEdge;
  }
  if (!near) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float t = 1 - u[i];
    if (u[i] > kEdge) result[i] = std::numbers::log2e_v<float> * t * (1 + t * (0.5f + t * (1.0f / 3)));
  }
}

template <class T, bool kKeep>
__global__ void __launch_bounds__(kDrawnThreads, 4) drawn_kernel(const __grid_constant__ DrawnArguments a) {
  constexpr int kU = kDrawnVectors;
  const std::uint32_t image = blockIdx.x / a.tiles, tile = blockIdx.x - image * a.tiles;
  const std::uint32_t first = tile * (kDrawnThreads * kU) + threadIdx.x;
  const std::int64_t base = static_cast<std::int64_t>(image) * a.vectors;
  uint4 bits[kU];
#pragma unroll
  for (int u = 0; u < kU; ++u)
    if (first + u * kDrawnThreads < a.vectors) bits[u] = load_16_bytes(a.x0 + (base + first + u * kDrawnThreads) * 16);
  const float2 level = __ldg(a.levels + image);
  const ImageNoise noise(a.noise, image);
  // sqrt(-2 ln u) = sqrt(2 ln 2) sqrt(-log2 u); sigma goes in with it where z itself is no output.
  constexpr float kRootTwoLn2 = 1.17741002f;
  const float scale = kKeep ? kRootTwoLn2 : level.y * kRootTwoLn2;
#pragma unroll
  for (int u = 0; u < kU; ++u) {
    const std::uint32_t vector = first + u * kDrawnThreads;
    if (vector >= a.vectors) return;
    const Philox4 p = noise.words(a.noise, 2 * vector), q = noise.words(a.noise, 2 * vector + 1);
    const std::uint32_t lengths[4] = {p.v[0], p.v[2], q.v[0], q.v[2]}, turns[4] = {p.v[1], p.v[3], q.v[1], q.v[3]};
    float squared[4], x[8], z[8];
    minus_log2(lengths, squared);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float radius;
      asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(squared[i]));
      cos_sin_turn(turns[i], z[2 * i], z[2 * i + 1]);
      z[2 * i] *= radius * scale;
      z[2 * i + 1] *= radius * scale;
    }
    unpack_vector<T>(bits[u], x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = level.x * x[i] + (kKeep ? level.y * z[i] : z[i]);
    store_stream<T>(a.x_t + base * 16, vector, x);
    if constexpr (kKeep) store_stream<T>(a.noise_out + base * 16, vector, z);
  }
}

// Whether an image fills a block's first access; shorter ones share blocks in stream().
inline bool fills_blocks(const Problem& p) {
  return p.elements / 8 >= kDrawnThreads;
}

inline Status launch_drawn(const Problem& p, DType dtype, const Tensors& t, const LaunchContext& context) {
  return with_half_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr std::uint32_t kTile = kDrawnThreads * kDrawnVectors;
    DrawnArguments a;
    a.x0 = static_cast<const char*>(t.x0);
    a.levels = reinterpret_cast<const float2*>(t.levels);
    a.x_t = static_cast<char*>(t.x_t);
    a.noise_out = static_cast<char*>(t.noise_out);
    a.noise = noise_stream(p);
    a.vectors = static_cast<std::uint32_t>(p.elements / 8);
    a.tiles = (a.vectors + kTile - 1) / kTile;
    const std::uint32_t blocks = a.tiles * static_cast<std::uint32_t>(p.batch);
    if (t.noise_out)
      drawn_kernel<T, true><<<blocks, kDrawnThreads, 0, context.stream>>>(a);
    else
      drawn_kernel<T, false><<<blocks, kDrawnThreads, 0, context.stream>>>(a);
    return launch_status("q_sample drawn_kernel");
  });
}

}  // namespace noisefloor::q_sample
