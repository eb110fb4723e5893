// Random operands for the tensor pipes: both signs, every mantissa bit in use, no NaN, and small enough that sums of a
// long run stay finite. Constant or zero operands switch fewer wires, so that the chip would clock higher than it does
// on real data.
#pragma once

#include <cstdint>

#include "bench/ceilings/gpu_rates.h"

namespace noisefloor::ceilings {

// One 32-bit register of operands (two bf16 or fp16, one tf32, four e4m3) from 32 random bits.
template <Operand kOperand>
__device__ __forceinline__ std::uint32_t random_operands(std::uint32_t bits) {
  if constexpr (kOperand == Operand::bf16) {
    // 1 sign, 8 exponent, 7 mantissa: exponent 120 + 3 random bits, so magnitudes from 2^-7 to 2.
    return (bits & 0x83ff83ffu) | 0x3c003c00u;
  } else if constexpr (kOperand == Operand::fp16) {
    // 1 sign, 5 exponent, 10 mantissa: exponent 8 + 3 random bits, so magnitudes from 2^-7 to 2.
    return (bits & 0x9fff9fffu) | 0x20002000u;
  } else if constexpr (kOperand == Operand::tf32) {
    // As fp32 with 10 mantissa bits: exponent 120 + 3 random bits.
    return (bits & 0x83ffe000u) | 0x3c000000u;
  } else {
    // e4m3: the exponent's top bit cleared, so magnitudes below 2 and no NaN.
    return bits & 0xbfbfbfbfu;
  }
}

// A cheap mix (the finaliser of MurmurHash3) of an index into 32 bits.
__device__ __forceinline__ std::uint32_t mix(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x85ebca6bu;
  x ^= x >> 13;
  x *= 0xc2b2ae35u;
  return x ^ (x >> 16);
}

}  // namespace noisefloor::ceilings
