// The normal numbers of a vector; and those of eight elements for kernels in 16 bits, where drawing competes with
// memory traffic for issue slots: the words of the definition (noise_stream.h), and box_muller's transform by fewer
// instructions, to an accuracy that 16 bits do not show: on an H200 within 1e-5 for every word
// (short_normals_test.cu), 2.4e-6 over 67 million numbers; elsewhere within 1.2e-5 by the bounds below.
#pragma once

#include <cstdint>
#include <numbers>

#include "kernels/device/image_noise.h"

namespace noisefloor {

// The normal numbers of vector `vector` of an image, of kLanes elements, by box_muller itself.
template <int kLanes>
__device__ __forceinline__ void draw_vector(const NoiseStream& stream, std::uint32_t image, std::uint32_t vector,
                                            float (&z)[kLanes]) {
#pragma unroll
  for (int block = 0; block < kLanes / kNormalsPerBlock; ++block) {
    const Normal4 normal = box_muller4(noise_words(stream, image, vector * (kLanes / kNormalsPerBlock) + block));
#pragma unroll
    for (int i = 0; i < kNormalsPerBlock; ++i) z[block * kNormalsPerBlock + i] = normal.v[i];
  }
}

// What four pairs of numbers are made of: radii and angles.
struct EightWords {
  std::uint32_t lengths[4], turns[4];
};

// Of elements 8 vector to 8 vector + 7 of an image.
__device__ __forceinline__ EightWords eight_words(const NoiseStream& stream, const ImageNoise& image,
                                                  std::uint32_t vector) {
  const Philox4 p = image.words(stream, 2 * vector), q = image.odd_words(stream, vector);
  return {{p.v[0], p.v[2], q.v[0], q.v[2]}, {p.v[1], p.v[3], q.v[1], q.v[3]}};
}

// sqrt(-2 ln u) = kRootTwoLn2 sqrt(-log2 u).
inline constexpr float kRootTwoLn2 = 1.17741002f;

// Eight normal numbers as pairs, radius times (cosine, sine): what adds them to something multiplies in the same
// instruction.
struct NormalPairs {
  float radius[4], cosine[4], sine[4];

  __device__ __forceinline__ void write(float (&z)[8]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      z[2 * i] = radius[i] * cosine[i];
      z[2 * i + 1] = radius[i] * sine[i];
    }
  }
  __device__ __forceinline__ void add_to(float (&x)[8]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[2 * i] = fmaf(radius[i], cosine[i], x[2 * i]);
      x[2 * i + 1] = fmaf(radius[i], sine[i], x[2 * i + 1]);
    }
  }
};

// The normal numbers times scale / kRootTwoLn2.
//
// lg2.approx has an absolute error of about 2^-21.4 near 1; from 1 - 2^-12 on, one vector in 1024, a series of two
// terms takes over (minus_two_log: of four, from 1 - 2^-5). Below, -log2 is at least 2^-11.5 and the error of its root
// 0.96e-5 by that bound, times kRootTwoLn2; above, the third term is at most 2^-25 of the sum. So a weak branch a
// vector saves four series.
__device__ __forceinline__ NormalPairs short_normals(const EightWords& words, float scale) {
  constexpr float kEdge = 1 - 0x1p-12f;
  NormalPairs pairs;
  float u[4], log2[4];
  bool near = false;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    u[i] = philox_uniform(words.lengths[i]);
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2[i]) : "f"(u[i]));
    near |= u[i] > kEdge;
    cos_sin_turn(words.turns[i], pairs.cosine[i], pairs.sine[i]);
  }
  if (near) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float t = u[i] - 1;
      if (u[i] > kEdge) log2[i] = std::numbers::log2e_v<float> * t * (1 - t * 0.5f);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(-log2[i]));  // the sign costs nothing here
    pairs.radius[i] = root * scale;
  }
  return pairs;
}

}  // namespace noisefloor
