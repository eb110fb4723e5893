// Loads and stores of whole words that other blocks of the GPU see without a fence: .relaxed at .gpu scope. PTX ISA,
// "Memory Consistency Model" and "ld", "st". sm_70 and newer.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

__device__ __forceinline__ void store_relaxed(std::uint64_t* global, std::uint64_t word) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(global)), "l"(word) : "memory");
}
__device__ __forceinline__ std::uint64_t load_relaxed(const std::uint64_t* global) {
  std::uint64_t word;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(word) : "l"(__cvta_generic_to_global(global)) : "memory");
  return word;
}

}  // namespace noisefloor::ptx
