// wgmma: a warpgroup's asynchronous 64 x N x 16 product of shared-memory tiles, accumulated in fp32 registers. PTX ISA,
// "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". sm_90a.
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

// clang-format off
// %i of the accumulators, in lists of 16, and the operands behind them.
#define NOISEFLOOR_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NOISEFLOOR_R16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NOISEFLOOR_R32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NOISEFLOOR_R32_8 "%32, %33, %34, %35, %36, %37, %38, %39"
#define NOISEFLOOR_R48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NOISEFLOOR_R64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NOISEFLOOR_R80 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NOISEFLOOR_R96 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define NOISEFLOOR_R112 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define NOISEFLOOR_D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define NOISEFLOOR_D16(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])

#define NOISEFLOOR_WGMMA(n, type, registers, a_operand, b_operand, p_operand, ...)                                \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " p_operand ", 0;\n"                          \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" registers "}, " a_operand ", "  \
               b_operand ", accumulate, 1, 1, 0, 0;\n}\n"                                                         \
               : __VA_ARGS__                                                                                      \
               : "l"(a), "l"(b), "r"(accumulate))
// clang-format on

// d[64, kN] = A[64, 16] B[kN, 16]^T (+ d where `accumulate` is 1), A and B k-major, by their descriptors. Thread t of
// the warpgroup holds, in d[4 * j + 2 * h + c], row 16 * (t / 32) + 8 * h + (t % 32) / 4 and column 8 * j + 2 * (t % 4)
// + c.
template <class T, int kN>
struct Wgmma;

template <class T>
struct Wgmma<T, 32> {
  static __device__ __forceinline__ void run(float (&d)[16], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(32, "f16", NOISEFLOOR_R0, "%16", "%17", "%18", NOISEFLOOR_D16(d, 0));
    else
      NOISEFLOOR_WGMMA(32, "bf16", NOISEFLOOR_R0, "%16", "%17", "%18", NOISEFLOOR_D16(d, 0));
  }
};

template <class T>
struct Wgmma<T, 64> {
  static __device__ __forceinline__ void run(float (&d)[32], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(64, "f16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16, "%32", "%33", "%34", NOISEFLOOR_D16(d, 0),
                       NOISEFLOOR_D16(d, 16));
    else
      NOISEFLOOR_WGMMA(64, "bf16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16, "%32", "%33", "%34", NOISEFLOOR_D16(d, 0),
                       NOISEFLOOR_D16(d, 16));
  }
};

template <class T>
struct Wgmma<T, 80> {
  static __device__ __forceinline__ void run(float (&d)[40], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(80, "f16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32_8, "%40", "%41", "%42",
                       NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D8(d, 32));
    else
      NOISEFLOOR_WGMMA(80, "bf16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32_8, "%40", "%41", "%42",
                       NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D8(d, 32));
  }
};

template <class T>
struct Wgmma<T, 96> {
  static __device__ __forceinline__ void run(float (&d)[48], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(96, "f16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32, "%48", "%49", "%50",
                       NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32));
    else
      NOISEFLOOR_WGMMA(96, "bf16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32, "%48", "%49", "%50",
                       NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32));
  }
};

template <class T>
struct Wgmma<T, 128> {
  static __device__ __forceinline__ void run(float (&d)[64], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(128, "f16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48, "%64",
                       "%65", "%66", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48));
    else
      NOISEFLOOR_WGMMA(128, "bf16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48, "%64",
                       "%65", "%66", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48));
  }
};

template <class T>
struct Wgmma<T, 160> {
  static __device__ __forceinline__ void run(float (&d)[80], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(160, "f16",
                       NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64,
                       "%80", "%81", "%82", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64));
    else
      NOISEFLOOR_WGMMA(160, "bf16",
                       NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64,
                       "%80", "%81", "%82", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64));
  }
};

template <class T>
struct Wgmma<T, 192> {
  static __device__ __forceinline__ void run(float (&d)[96], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(192, "f16",
                       NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64
                                     ", " NOISEFLOOR_R80,
                       "%96", "%97", "%98", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64), NOISEFLOOR_D16(d, 80));
    else
      NOISEFLOOR_WGMMA(192, "bf16",
                       NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64
                                     ", " NOISEFLOOR_R80,
                       "%96", "%97", "%98", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64), NOISEFLOOR_D16(d, 80));
  }
};

template <class T>
struct Wgmma<T, 256> {
  static __device__ __forceinline__ void run(float (&d)[128], std::uint64_t a, std::uint64_t b,
                                             std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA(256, "f16",
                       NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64
                                     ", " NOISEFLOOR_R80 ", " NOISEFLOOR_R96 ", " NOISEFLOOR_R112,
                       "%128", "%129", "%130", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64), NOISEFLOOR_D16(d, 80), NOISEFLOOR_D16(d, 96),
                       NOISEFLOOR_D16(d, 112));
    else
      NOISEFLOOR_WGMMA(256, "bf16",
                       NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64
                                     ", " NOISEFLOOR_R80 ", " NOISEFLOOR_R96 ", " NOISEFLOOR_R112,
                       "%128", "%129", "%130", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32),
                       NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64), NOISEFLOOR_D16(d, 80), NOISEFLOOR_D16(d, 96),
                       NOISEFLOOR_D16(d, 112));
  }
};

#undef NOISEFLOOR_WGMMA
#undef NOISEFLOOR_D8
#undef NOISEFLOOR_D16
#undef NOISEFLOOR_R0
#undef NOISEFLOOR_R16
#undef NOISEFLOOR_R32
#undef NOISEFLOOR_R32_8
#undef NOISEFLOOR_R48
#undef NOISEFLOOR_R64
#undef NOISEFLOOR_R80
#undef NOISEFLOOR_R96
#undef NOISEFLOOR_R112

}  // namespace noisefloor::ptx
