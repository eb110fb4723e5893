// The random numbers of every benchmark's inputs: number i of a stream depends on (seed, i) alone.
#pragma once

#include <cstdint>

#include "kernels/core/philox.h"

#if !defined(__CUDACC__)
#include <cmath>
#endif

namespace noisefloor {

// Normal numbers 4 * block to 4 * block + 3 of stream `seed`, by Box-Muller in float.
NOISEFLOOR_HD void normal_block(std::uint64_t seed, std::uint64_t block, float out[4]) {
  const Philox4 words = philox4x32_10(philox_counter(block, 0), seed);
  for (int half = 0; half < 2; ++half) {
    // (0, 1]: the logarithm stays finite.
    const float u = (static_cast<float>(words.v[2 * half] >> 8) + 1.0f) * 0x1p-24f;
    const float angle = static_cast<float>(words.v[2 * half + 1] >> 8) * (6.283185307179586f * 0x1p-24f);
    const float radius = sqrtf(-2.0f * logf(u));
    out[2 * half] = radius * cosf(angle);
    out[2 * half + 1] = radius * sinf(angle);
  }
}

// One word of a tensor, mixed with its place (the finaliser of MurmurHash3), for checksums that any order may add up.
NOISEFLOOR_HD std::uint64_t hashed_word(std::uint32_t word, std::uint64_t index) {
  std::uint64_t x = (index << 32 | index >> 32) ^ word ^ 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDull;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ull;
  return x ^ (x >> 33);
}

}  // namespace noisefloor
