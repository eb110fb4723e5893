// wgmma with A k-major and B n-major, both in shared memory: what the second product of attention is whose weights do
// not stay in their warpgroup. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". sm_90a.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace noisefloor::ptx {

// clang-format off
#define NOISEFLOOR_R0 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define NOISEFLOOR_R16 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NOISEFLOOR_R32 "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define NOISEFLOOR_R48 "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NOISEFLOOR_R64 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define NOISEFLOOR_R80 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define NOISEFLOOR_R96 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define NOISEFLOOR_R112 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define NOISEFLOOR_D16(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7]), "+f"(d[i + 8]), "+f"(d[i + 9]), "+f"(d[i + 10]), "+f"(d[i + 11]), "+f"(d[i + 12]), "+f"(d[i + 13]), "+f"(d[i + 14]), "+f"(d[i + 15])

#define NOISEFLOOR_WGMMA_N_MAJOR(n, type, registers, a_operand, b_operand, p_operand, ...)                        \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " p_operand ", 0;\n"                          \
               "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" registers "}, " a_operand ", "  \
               b_operand ", accumulate, 1, 1, 0, 1;\n}\n"                                                         \
               : __VA_ARGS__                                                                                      \
               : "l"(a), "l"(b), "r"(accumulate))

// d[64, 256] = A[64, 16] B[16, 256] (+ d where `accumulate` is 1), A by wgmma_descriptor_128b (wgmma.cuh), B by
// wgmma_descriptor_n_major_128b (wgmma_registers.cuh). d as in Wgmma.
template <class T>
struct WgmmaNMajor256 {
  static __device__ __forceinline__ void run(float (&d)[128], std::uint64_t a, std::uint64_t b, std::uint32_t accumulate) {
    if constexpr (std::is_same_v<T, __half>)
      NOISEFLOOR_WGMMA_N_MAJOR(256, "f16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64 ", " NOISEFLOOR_R80 ", " NOISEFLOOR_R96 ", " NOISEFLOOR_R112, "%128", "%129", "%130", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32), NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64), NOISEFLOOR_D16(d, 80), NOISEFLOOR_D16(d, 96), NOISEFLOOR_D16(d, 112));
    else
      NOISEFLOOR_WGMMA_N_MAJOR(256, "bf16", NOISEFLOOR_R0 ", " NOISEFLOOR_R16 ", " NOISEFLOOR_R32 ", " NOISEFLOOR_R48 ", " NOISEFLOOR_R64 ", " NOISEFLOOR_R80 ", " NOISEFLOOR_R96 ", " NOISEFLOOR_R112, "%128", "%129", "%130", NOISEFLOOR_D16(d, 0), NOISEFLOOR_D16(d, 16), NOISEFLOOR_D16(d, 32), NOISEFLOOR_D16(d, 48), NOISEFLOOR_D16(d, 64), NOISEFLOOR_D16(d, 80), NOISEFLOOR_D16(d, 96), NOISEFLOOR_D16(d, 112));
  }
};
// clang-format on

#undef NOISEFLOOR_WGMMA_N_MAJOR
#undef NOISEFLOOR_D16
#undef NOISEFLOOR_R0
#undef NOISEFLOOR_R16
#undef NOISEFLOOR_R32
#undef NOISEFLOOR_R48
#undef NOISEFLOOR_R64
#undef NOISEFLOOR_R80
#undef NOISEFLOOR_R96
#undef NOISEFLOOR_R112

}  // namespace noisefloor::ptx
