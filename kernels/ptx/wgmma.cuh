// wgmma: a warpgroup's asynchronous product, 64 x N x 32 bytes, of a tile in shared memory and one there or in
// registers, accumulated in fp32 registers. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
// Instructions". sm_90a.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace noisefloor::ptx {

// wgmma.fence: registers and shared memory written so far are visible to the wgmmas that follow.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// All but the newest `kPending` groups are done.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Tells the compiler that a register is an operand of wgmmas in flight, so that it neither moves nor copies it.
__device__ __forceinline__ void wgmma_pin(float& accumulator) {
  asm volatile("" : "+f"(accumulator)::"memory");
}

// The descriptor of a tile whose rows are 128 bytes of the contiguous (k) dimension under the 128-byte swizzle, as TMA
// writes it: groups of 8 rows lie 1024 bytes apart. "Matrix descriptor format": bits 0-13 address / 16, 16-29 leading
// byte offset (ignored for swizzled k-major tiles), 32-45 stride byte offset / 16, 62-63 swizzle (1: 128 bytes). The
// tile is 1024-byte aligned; a step of 16 elements along k adds 32 bytes, that is 2, to the descriptor.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_128b(std::uint32_t address) {
  constexpr std::uint64_t kStride = std::uint64_t{1024 / 16} << 32;
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  return kSwizzle128 | kStride | std::uint64_t{(address & 0x3ffff) >> 4};
}
// The same of address / 16, which is kept below 2^14.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_128b_of(std::uint32_t sixteenths) {
  return std::uint64_t{1u << 30 | 1024 / 16} << 32 | sixteenths;
}
// The same for groups of 8 rows that lie `group_bytes` apart, a multiple of 128, in a larger swizzled tile that is
// 1024-byte aligned: the first row may be any of it, since the swizzle follows the address (seen on an H200).
__device__ __forceinline__ std::uint64_t wgmma_descriptor_128b_of(std::uint32_t sixteenths, int group_bytes) {
  return std::uint64_t{1u << 30 | static_cast<std::uint32_t>(group_bytes) >> 4} << 32 | sixteenths;
}

// The descriptor of a tile whose rows are 128 bytes of the n dimension (64 elements) under the 128-byte swizzle, as TMA
// writes it, one row per k; `box_bytes` from one block of 64 columns to the next. "Matrix descriptor format": bits
// 16-29 leading byte offset / 16, here from block to block, 32-45 stride byte offset / 16, from 8 rows of k to the
// next. The tile is 1024-byte aligned; a step of 16 along k adds 2048 bytes, that is 128, to the descriptor.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_n_major_128b(std::uint32_t address, std::uint32_t box_bytes) {
  return wgmma_descriptor_128b(address) | std::uint64_t{box_bytes >> 4} << 16;
}
// The same of address / 16, which is kept below 2^14.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_n_major_128b_of(std::uint32_t sixteenths,
                                                                          std::uint32_t box_bytes) {
  return wgmma_descriptor_128b_of(sixteenths + (box_bytes >> 4 << 16));
}
// The same of rows of 64 bytes (32 elements) under the 64-byte swizzle (2), of which 8 take 512 bytes.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_n_major_64b_of(std::uint32_t sixteenths,
                                                                         std::uint32_t box_bytes) {
  return std::uint64_t{2u << 30 | 512 / 16} << 32 | (sixteenths + (box_bytes >> 4 << 16));
}

// The descriptor of 8 rows x 32 bytes that lie unswizzled in 256, each 128 a matrix of 8 rows x 16 bytes.
__device__ __forceinline__ std::uint64_t wgmma_descriptor_unswizzled(std::uint32_t address) {
  constexpr std::uint64_t kMatrix = 128 / 16;
  return kMatrix << 32 | kMatrix << 16 | std::uint64_t{(address & 0x3ffff) >> 4};
}

// d[64, kN] = A B (+ d where `accumulate` is 1), B k-major in shared memory by wgmma_descriptor_128b or, of 16-bit
// types, n-major by wgmma_descriptor_n_major_128b. A has 32 bytes of k a row: in shared memory likewise (m-major:
// `kMMajor`), or `a`, this thread's part of it in registers, which must not change until the product is done: 4-byte
// words of rows r, r + 8 and words c, c + 4, in the order {r: c, r + 8: c, r: c + 4, r + 8: c + 4}, with r = 16 * (t /
// 32 % 4) + t % 32 / 4 and c = t % 4 of thread t. That holds, in d[4 * j + 2 * h + i], row r + 8 * h and column 8 * j +
// 2 * c + i. T:
// __nv_bfloat16, __half, Tf32 or E4m3. kN: a multiple of 8 up to 256. By wgmma.cmake, which writes all kN.
struct Tf32;
struct E4m3;
template <class T, int kN, bool kNMajor = false, bool kMMajor = false>
struct Wgmma;

#define NOISEFLOOR_WGMMA_BY_TYPE(majors)                                    \
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {                         \
    NOISEFLOOR_WGMMA("k16.f32.bf16.bf16", majors);                          \
  } else if constexpr (std::is_same_v<T, __half>) {                         \
    NOISEFLOOR_WGMMA("k16.f32.f16.f16", majors);                            \
  } else {                                                                  \
    static_assert(!kNMajor && !kMMajor, "k-major, but for 16-bit types");   \
    if constexpr (std::is_same_v<T, Tf32>)                                  \
      NOISEFLOOR_WGMMA("k8.f32.tf32.tf32", "");                             \
    else if constexpr (std::is_same_v<T, E4m3>)                             \
      NOISEFLOOR_WGMMA("k32.f32.e4m3.e4m3", "");                            \
    else                                                                    \
      static_assert(std::is_same_v<T, E4m3>, "wgmma has no such operands"); \
  }
#include <noisefloor_wgmma.cuh>
#undef NOISEFLOOR_WGMMA_BY_TYPE

}  // namespace noisefloor::ptx
