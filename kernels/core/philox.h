// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011), and
// normal numbers from it. Pure functions of (key, counter): the same on host and device, whatever the launch shape.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define NOISEFLOOR_HD __host__ __device__ __forceinline__
#else
#define NOISEFLOOR_HD inline
#endif

namespace noisefloor {

struct Philox4 {
  std::uint32_t v[4];
};

NOISEFLOOR_HD void philox_round(Philox4& c, std::uint32_t k0, std::uint32_t k1) {
  const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c.v[0];
  const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c.v[2];
  c = {{static_cast<std::uint32_t>(p1 >> 32) ^ c.v[1] ^ k0, static_cast<std::uint32_t>(p1),
        static_cast<std::uint32_t>(p0 >> 32) ^ c.v[3] ^ k1, static_cast<std::uint32_t>(p0)}};
}

// Four 32-bit words for 128-bit counter `c` under the 64-bit key `seed`.
NOISEFLOOR_HD Philox4 philox4x32_10(Philox4 c, std::uint64_t seed) {
  auto k0 = static_cast<std::uint32_t>(seed);
  auto k1 = static_cast<std::uint32_t>(seed >> 32);
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int round = 0; round < 10; ++round) {
    philox_round(c, k0, k1);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// The counter of block `block` (four numbers each) of stream `stream`.
NOISEFLOOR_HD Philox4 philox_counter(std::uint64_t block, std::uint64_t stream) {
  return {{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), static_cast<std::uint32_t>(stream),
           static_cast<std::uint32_t>(stream >> 32)}};
}

}  // namespace noisefloor
