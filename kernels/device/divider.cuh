// Division by a number that the host knows.
#pragma once

#include <cstdint>

namespace noisefloor {

// n / divisor for n < 2^31 by a multiplication and a shift (Granlund and Montgomery, "Division by Invariant Integers
// using Multiplication", 1994, fig. 4.1).
struct Divider {
  std::uint32_t divisor = 1, multiplier = 1, shift = 0;

  Divider() = default;
  explicit Divider(std::uint32_t d) : divisor(d) {
    while ((std::uint64_t{1} << shift) < d) ++shift;
    multiplier = static_cast<std::uint32_t>((((std::uint64_t{1} << shift) - d) << 32) / d + 1);
  }
  __device__ __forceinline__ std::uint32_t quotient(std::uint32_t n) const {
    return (__umulhi(n, multiplier) + n) >> shift;
  }
};

}  // namespace noisefloor
