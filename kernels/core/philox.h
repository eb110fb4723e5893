// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011),
// and normal numbers from it. Pure functions of (key, counter): the same on host and device, whatever the launch shape.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#if defined(__CUDACC__)
#define NOISEFLOOR_HD __host__ __device__ __forceinline__
#else
#define NOISEFLOOR_HD inline
#endif

namespace noisefloor {

struct Philox4 {
  std::uint32_t v[4];
};

// The keys of the ten rounds; a kernel's argument, so that no thread computes them.
struct PhiloxKeys {
  std::uint32_t k[10][2];
};

NOISEFLOOR_HD PhiloxKeys philox_keys(std::uint64_t seed) {
  PhiloxKeys keys;
  for (std::uint32_t round = 0; round < 10; ++round) {
    keys.k[round][0] = static_cast<std::uint32_t>(seed) + round * 0x9E3779B9u;
    keys.k[round][1] = static_cast<std::uint32_t>(seed >> 32) + round * 0xBB67AE85u;
  }
  return keys;
}

// 32 x 32 -> 64 bits. In PTX, because nvcc adds a zero to the upper half of each product of zero-extended numbers.
NOISEFLOOR_HD std::uint64_t multiply_wide(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
  std::uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(a), "r"(b));
  return product;
#else
  return std::uint64_t{a} * b;
#endif
}

// a b + c, below 2^64: one instruction.
NOISEFLOOR_HD std::uint64_t multiply_add_wide(std::uint32_t a, std::uint32_t b, std::uint64_t c) {
#if defined(__CUDA_ARCH__)
  std::uint64_t sum;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(sum) : "r"(a), "r"(b), "l"(c));
  return sum;
#else
  return std::uint64_t{a} * b + c;
#endif
}

// Rounds kFirst to 9 on the words that those before them made.
template <int kFirst>
NOISEFLOOR_HD Philox4 philox4x32_rounds(Philox4 c, const PhiloxKeys& keys) {
#if defined(__CUDA_ARCH__)
#pragma unroll
#elif !defined(__CUDACC__)
#pragma GCC unroll 10
#endif
  for (int round = kFirst; round < 10; ++round) {
    const std::uint64_t p0 = multiply_wide(0xD2511F53u, c.v[0]);
    const std::uint64_t p1 = multiply_wide(0xCD9E8D57u, c.v[2]);
    c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.v[1] ^ keys.k[round][0], static_cast<std::uint32_t>(p1),
          static_cast<std::uint32_t>(p0 >> 32) ^ c.v[3] ^ keys.k[round][1], static_cast<std::uint32_t>(p0)}};
  }
  return c;
}

// Four 32-bit words for 128-bit counter `c`.
NOISEFLOOR_HD Philox4 philox4x32_10(Philox4 c, const PhiloxKeys& keys) {
  return philox4x32_rounds<0>(c, keys);
}
NOISEFLOOR_HD Philox4 philox4x32_10(Philox4 c, std::uint64_t seed) {
  return philox4x32_10(c, philox_keys(seed));
}

// The counter of block `block` (four numbers each) of stream `stream`.
NOISEFLOOR_HD Philox4 philox_counter(std::uint64_t block, std::uint64_t stream) {
  return {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
           static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)}};
}

// Normal numbers by the transform of Box and Muller, "A Note on the Generation of Random Normal Deviates" (1958): two
// words give
//   sqrt(-2 ln u) * (cos a, sin a),  u = (word0 + 1/2) / 2^32 rounded to float,  a = 2 pi int32(word1) / 2^32.
// u is part of the definition as rounded, in (0, 1], so that every implementation takes the logarithm of the same
// number. The largest normal number is sqrt(66 ln 2), 6.8.
struct Normal4 {
  float v[4];
};

NOISEFLOOR_HD float philox_uniform(std::uint32_t word) {
  return static_cast<float>(word) * 0x1p-32f + 0x1p-33f;  // the product is exact: one rounding, with or without FMA
}

// -2 ln(u) for u in (0, 1], to a relative error of 2^-17. lg2.approx has an absolute error of about 2^-21.4 near 1
// (CUDA Programming Guide), where the square root would blow it up: from 1 - 2^-5 on the series of -ln(1 - t) in the
// exact t = 1 - u takes over, off by t^4/5.
NOISEFLOOR_HD float minus_two_log(float u) {
#if defined(__CUDA_ARCH__)
  float log2;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log2) : "f"(u));
  const float far = -2 * std::numbers::ln2_v<float> * log2;
  const float t = 1 - u;
  const float near = t * (2 + t * (1 + t * (2.0f / 3 + t * 0.5f)));
  return t < 0x1p-5f ? near : far;
#else
  // u = 2^e m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s) with s = (m - 1) / (m + 1), at most 0.172.
  const auto bits = std::bit_cast<std::int32_t>(u);
  const std::int32_t e = (bits - 0x3f3504f3) >> 23;
  const float m = std::bit_cast<float>(bits - e * (1 << 23));
  const float s = (m - 1) / (m + 1);
  const float s2 = s * s;
  const float atanh = s * (1 + s2 * (1.0f / 3 + s2 * (1.0f / 5 + s2 * (1.0f / 7 + s2 * (1.0f / 9)))));
  return -4 * atanh - 2 * std::numbers::ln2_v<float> * static_cast<float>(e);
#endif
}

// Cosine and sine of 2 pi int32(word) / 2^32; absolute error about 2^-20 (sin.approx: 2^-20.9 within [-pi, pi]).
NOISEFLOOR_HD void cos_sin_turn(std::uint32_t word, float& cosine, float& sine) {
  constexpr float kRadians = 2 * std::numbers::pi_v<float> * 0x1p-32f;
#if defined(__CUDA_ARCH__)
  const float angle = static_cast<float>(static_cast<std::int32_t>(word)) * kRadians;
  asm("cos.approx.ftz.f32 %0, %1;" : "=f"(cosine) : "f"(angle));
  asm("sin.approx.ftz.f32 %0, %1;" : "=f"(sine) : "f"(angle));
#else
  // word = quadrant * 2^30 + rest, so that the angle of the rest is within pi/4 of 0; Taylor series there.
  const std::uint32_t quadrant = (word + (1u << 29)) >> 30;
  const float a = static_cast<float>(static_cast<std::int32_t>(word - (quadrant << 30))) * kRadians;
  const float a2 = a * a;
  const float s = a * (1 + a2 * (-1.0f / 6 + a2 * (1.0f / 120 + a2 * (-1.0f / 5040 + a2 * (1.0f / 362880)))));
  const float c = 1 + a2 * (-0.5f + a2 * (1.0f / 24 + a2 * (-1.0f / 720 + a2 * (1.0f / 40320))));
  const bool swapped = (quadrant & 1) != 0;
  const float along = swapped ? s : c;
  const float across = swapped ? c : s;
  cosine = ((quadrant + 1) & 2) != 0 ? -along : along;
  sine = (quadrant & 2) != 0 ? -across : across;
#endif
}

NOISEFLOOR_HD void box_muller(std::uint32_t word0, std::uint32_t word1, float& first, float& second) {
  const float squared = minus_two_log(philox_uniform(word0));
#if defined(__CUDA_ARCH__)
  float radius;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(radius) : "f"(squared));
#else
  const float radius = std::sqrt(squared);
#endif
  float cosine, sine;
  cos_sin_turn(word1, cosine, sine);
  first = radius * cosine;
  second = radius * sine;
}

// Four normal numbers from the words of one block: (0, 1) and (2, 3) make a pair each.
NOISEFLOOR_HD Normal4 box_muller4(const Philox4& words) {
  Normal4 normal;
  box_muller(words.v[0], words.v[1], normal.v[0], normal.v[1]);
  box_muller(words.v[2], words.v[3], normal.v[2], normal.v[3]);
  return normal;
}

// Block `block` of stream `stream` under `seed`, as normal numbers.
NOISEFLOOR_HD Normal4 philox_normal4(std::uint64_t seed, std::uint64_t stream, std::uint64_t block) {
  return box_muller4(philox4x32_10(philox_counter(block, stream), seed));
}

// The definition in double: what the functions above approximate. `index` is 0 or 1 within the pair.
NOISEFLOOR_HD double box_muller_exact(std::uint32_t word0, std::uint32_t word1, int index) {
  const double radius = std::sqrt(-2 * std::log(static_cast<double>(philox_uniform(word0))));
  const double angle = 2 * std::numbers::pi * 0x1p-32 * static_cast<std::int32_t>(word1);
  return radius * (index == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace noisefloor
