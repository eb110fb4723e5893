// ldmatrix: a warp reads 8x8 matrices of 16-bit elements from shared memory into mma fragments; sm_75 and newer. Lane l
// gives the 16-byte aligned address of row l%8 of matrix l/8, and gets elements 2(l%4), 2(l%4) + 1 of row l/4 of each
// matrix (transposed: of column l/4). PTX ISA, "Warp-level matrix load instruction: ldmatrix".
#pragma once

#include <cstdint>

#include "kernels/ptx/shared.cuh"

namespace noisefloor::ptx {

__device__ __forceinline__ void ldmatrix_x4(std::uint32_t& r0, std::uint32_t& r1, std::uint32_t& r2, std::uint32_t& r3,
                                            std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3)
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4(std::uint32_t (&r)[4], std::uint32_t address) {
  ldmatrix_x4(r[0], r[1], r[2], r[3], address);
}

// Two matrices; the addresses of lanes 16 to 31 are not used.
__device__ __forceinline__ void ldmatrix_x2(std::uint32_t& r0, std::uint32_t& r1, std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(std::uint32_t (&r)[4], std::uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

}  // namespace noisefloor::ptx
