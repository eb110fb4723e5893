// stmatrix: a warp writes 8x8 matrices of 16-bit elements from accumulator-shaped registers to shared memory. PTX ISA,
// "Warp-level matrix store instruction: stmatrix". sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// Four matrices; lane l gives the 16-byte aligned address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void stmatrix_x4(std::uint32_t row, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                            std::uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}

// Two matrices, from the addresses of lanes 0 to 15; those of the others are ignored.
__device__ __forceinline__ void stmatrix_x2(std::uint32_t row, std::uint32_t a, std::uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a), "r"(b) : "memory");
}

}  // namespace noisefloor::ptx
