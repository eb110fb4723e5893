// q_sample with drawn noise in 16 bits, where instructions are the limit: a block works on one image, so that nothing
// is divided and Philox starts from what the image's blocks share; and normal numbers are made by fewer instructions
// than box_muller's (short_normals.cuh).
#pragma once

#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/short_normals.cuh"
#include "kernels/device/stream.cuh"
#include "kernels/q_sample/q_sample.h"

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

// x: eight elements of x0. kKeep: `normals` are z itself, else sigma z.
template <class T, bool kKeep>
__device__ __forceinline__ void finish_drawn(const NormalPairs& normals, float2 level, float (&x)[8], void* x_t,
                                             [[maybe_unused]] void* noise_out) {
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] *= level.x;
  if constexpr (kKeep) {
    float z[8];
    normals.write(z);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = fmaf(level.y, z[i], x[i]);
    store_16_bytes(noise_out, pack_vector<T>(z));
  } else {
    normals.add_to(x);
  }
  store_16_bytes(x_t, pack_vector<T>(x));
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
  // sigma goes in with the numbers' own factor where z itself is not an output.
  const float scale = kKeep ? kRootTwoLn2 : level.y * kRootTwoLn2;
#pragma unroll
  for (int u = 0; u < kU; ++u) {
    const std::uint32_t vector = first + u * kDrawnThreads;
    if (vector >= a.vectors) return;
    const NormalPairs normals = short_normals(eight_words(a.noise, noise, vector), scale);
    float x[8];
    unpack_vector<T>(bits[u], x);
    const std::int64_t at = (base + vector) * 16;
    finish_drawn<T, kKeep>(normals, level, x, a.x_t + at, kKeep ? a.noise_out + at : nullptr);
  }
}

// Whether an image fills a block's first access; shorter ones share blocks in stream().
inline bool fills_blocks(const Problem& p) {
  return p.elements / 8 >= kDrawnThreads;
}

// All but the tiles.
inline DrawnArguments drawn_arguments(const Problem& p, const Tensors& t) {
  DrawnArguments a;
  a.x0 = static_cast<const char*>(t.x0);
  a.levels = reinterpret_cast<const float2*>(t.levels);
  a.x_t = static_cast<char*>(t.x_t);
  a.noise_out = static_cast<char*>(t.noise_out);
  a.noise = noise_stream(p);
  a.vectors = static_cast<std::uint32_t>(p.elements / 8);
  a.tiles = 0;
  return a;
}

inline Status launch_drawn(const Problem& p, DType dtype, const Tensors& t, const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    constexpr std::uint32_t kTile = kDrawnThreads * kDrawnVectors;
    DrawnArguments a = drawn_arguments(p, t);
    a.tiles = (a.vectors + kTile - 1) / kTile;
    const std::uint32_t blocks = a.tiles * static_cast<std::uint32_t>(p.batch);
    const auto kernel = t.noise_out ? drawn_kernel<T, true> : drawn_kernel<T, false>;
    return launch_kernel("q_sample drawn_kernel", kernel, {.grid = blocks, .block = kDrawnThreads}, context.stream, a);
  });
}

}  // namespace noisefloor::q_sample
