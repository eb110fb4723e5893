// wgmma with A in registers and B n-major in shared memory: what the second product of attention is, weights from the
// softmax times values as they lie. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
// sm_90a.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::ptx {

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

// clang-format off
#define NOISEFLOOR_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NOISEFLOOR_R16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NOISEFLOOR_R32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NOISEFLOOR_R48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NOISEFLOOR_R64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NOISEFLOOR_R80 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NOISEFLOOR_R96 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define NOISEFLOOR_R112 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define NOISEFLOOR_R16_4 "%16, %17, %18, %19"
#define NOISEFLOOR_R32_8 "%32, %33, %34, %35, %36, %37, %38, %39"
#define NOISEFLOOR_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NOISEFLOOR_D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define NOISEFLOOR_D16(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])

#define NOISEFLOOR_WGMMA_RS(n, type, registers, a0, a1, a2, a3, b_operand, p_operand, ...)                        \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " p_operand ", 0;\n"                          \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" registers "}, {" a0 ", " a1 ", " \
               a2 ", " a3 "}, " b_operand ", accumulate, 1, 1, 1;\n}\n"                                             \
               : __VA_ARGS__                                                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
// Both types of one size; i0 to i5 number the operands behind the accumulators.
#define NOISEFLOOR_WGMMA_RS_SIZE(n, count, registers, i0, i1, i2, i3, i4, i5, ...)                                \
  template <class T>                                                                                              \
  struct WgmmaRegisters<T, n> {                                                                                   \
    static __device__ __forceinline__ void run(float (&d)[count], const std::uint32_t (&a)[4], std::uint64_t b,   \
                                               std::uint32_t accumulate) {                                        \
      if constexpr (std::is_same_v<T, __half>)                                                                    \
        NOISEFLOOR_WGMMA_RS(n, "f16", registers, i0, i1, i2, i3, i4, i5, __VA_ARGS__);                            \
      else                                                                                                        \
        NOISEFLOOR_WGMMA_RS(n, "bf16", registers, i0, i1, i2, i3, i4, i5, __VA_ARGS__);                           \
    }                                                                                                             \
  }

// d[64, kN] = A[64, 16] B[16, kN] (+ d where `accumulate` is 1). `a` is this thread's part of A: rows r and r + 8,
// columns c, c + 1 and c + 8, c + 9, with r = 16 * (t / 32 % 4) + t % 32 / 4 and c = 2 * (t % 4), in the order {r: c, r + 8:
// c, r: c + 8, r + 8: c + 8}; a register must not change until the product is done. d as in Wgmma.
template <class T, int kN>
struct WgmmaRegisters;

NOISEFLOOR_WGMMA_RS_SIZE(40, 20, NOISEFLOOR_R0 ", " NOISEFLOOR_R16_4, "%20", "%21", "%22", "%23", "%24", "%25", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D4(d, 16));
NOISEFLOOR_WGMMA_RS_SIZE(64, 32, NOISEFLOOR_R0 ", " NOISEFLOOR_R16, "%32", "%33", "%34", "%35", "%36", "%37", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16));
NOISEFLOOR_WGMMA_RS_SIZE(80, 40, NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32_8, "%40", "%41", "%42", "%43", "%44", "%45", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D8(d, 32));
NOISEFLOOR_WGMMA_RS_SIZE(128, 64, NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48, "%64", "%65", "%66", "%67", "%68", "%69", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32), NOISEFLOOR_D16(d, 48));
NOISEFLOOR_WGMMA_RS_SIZE(160, 80, NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64, "%80", "%81", "%82", "%83", "%84", "%85", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32), NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64));
NOISEFLOOR_WGMMA_RS_SIZE(256, 128, NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64 ", " NOISEFLOOR_R80 ", " NOISEFLOOR_R96 ", " NOISEFLOOR_R112, "%128", "%129", "%130", "%131", "%132", "%133", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32), NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64), NOISEFLOOR_D16(d, 80), NOISEFLOOR_D16(d, 96), NOISEFLOOR_D16(d, 112));
// clang-format on

#undef NOISEFLOOR_WGMMA_RS_SIZE
#undef NOISEFLOOR_WGMMA_RS
#undef NOISEFLOOR_R0
#undef NOISEFLOOR_R16
#undef NOISEFLOOR_R32
#undef NOISEFLOOR_R48
#undef NOISEFLOOR_R64
#undef NOISEFLOOR_R80
#undef NOISEFLOOR_R96
#undef NOISEFLOOR_R112
#undef NOISEFLOOR_R16_4
#undef NOISEFLOOR_R32_8
#undef NOISEFLOOR_D4
#undef NOISEFLOOR_D8
#undef NOISEFLOOR_D16

}  // namespace noisefloor::ptx
