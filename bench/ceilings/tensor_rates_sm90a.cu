// The rate of Hopper's tensor pipe: two warpgroups an SM issue wgmma m64n256 over random tiles in shared memory.
//
// Shared memory: kTiles x (2 x 64 rows of A + 256 rows of B) x 128 bytes = 4 x 48 KiB = 192 KiB. An instruction reads
// 10 KiB (2 of A, 8 of B) in the 128 cycles that the pipe needs for it: 80 of the 128 bytes a cycle that shared memory
// gives. Registers: 128 accumulators a thread. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
// Instructions".
#include "bench/ceilings/gpu_rates.h"
#include "bench/ceilings/random_operand.cuh"

namespace noisefloor::ceilings {
namespace {

constexpr int kThreads = 256;
constexpr int kWarpgroups = kThreads / 128;
constexpr int kTiles = 4;
constexpr int kRowBytes = 128;
constexpr int kInstructionBytes = 32;  // along k, of every operand type
constexpr int kM = 64;
constexpr int kN = 256;
constexpr int kTileBytes = (kWarpgroups * kM + kN) * kRowBytes;
constexpr int kSharedBytes = kTiles * kTileBytes + 1024;  // and room to align to the swizzle's 1024 bytes
constexpr int kPerIteration = kTiles * kRowBytes / kInstructionBytes;

// Tiles of 128-byte rows along k under the 128-byte swizzle: address / 16, 1024 bytes between groups of 8 rows,
// swizzle 1.
__device__ __forceinline__ std::uint64_t descriptor(std::uint32_t address) {
  return (std::uint64_t{1} << 62) | (std::uint64_t{1024 / 16} << 32) | ((address & 0x3ffffu) >> 4);
}

// clang-format off
#define NOISEFLOOR_D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define NOISEFLOOR_D64(i) NOISEFLOOR_D8(i), NOISEFLOOR_D8(i + 8), NOISEFLOOR_D8(i + 16), NOISEFLOOR_D8(i + 24), \
                          NOISEFLOOR_D8(i + 32), NOISEFLOOR_D8(i + 40), NOISEFLOOR_D8(i + 48), NOISEFLOOR_D8(i + 56)
#define NOISEFLOOR_WGMMA(shape, types, transposes)                                                                   \
  asm volatile("wgmma.mma_async.sync.aligned." shape ".f32." types " {"                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, " \
    "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, " \
    "%68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, " \
    "%90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, " \
    "%110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "  \
    "%128, %129, 1, 1, 1" transposes ";"                                                                             \
    : NOISEFLOOR_D64(0), NOISEFLOOR_D64(64) : "l"(a), "l"(b))
// clang-format on

template <Operand kOperand>
__device__ __forceinline__ void wgmma(float (&d)[128], std::uint64_t a, std::uint64_t b) {
  if constexpr (kOperand == Operand::bf16)
    NOISEFLOOR_WGMMA("m64n256k16", "bf16.bf16", ", 0, 0");
  else if constexpr (kOperand == Operand::fp16)
    NOISEFLOOR_WGMMA("m64n256k16", "f16.f16", ", 0, 0");
  else if constexpr (kOperand == Operand::tf32)
    NOISEFLOOR_WGMMA("m64n256k8", "tf32.tf32", "");
  else
    NOISEFLOOR_WGMMA("m64n256k32", "e4m3.e4m3", "");
}

#undef NOISEFLOOR_WGMMA
#undef NOISEFLOOR_D64
#undef NOISEFLOOR_D8

template <Operand kOperand>
__global__ void __launch_bounds__(kThreads, 1) wgmma_kernel(float* sink, int iterations) {
  extern __shared__ std::uint8_t shared[];
  const auto start = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const std::uint32_t aligned = (start + 1023u) & ~1023u;
  auto* words = reinterpret_cast<std::uint32_t*>(shared + (aligned - start));
  for (int i = static_cast<int>(threadIdx.x); i < kTiles * kTileBytes / 4; i += kThreads)
    words[i] = random_operands<kOperand>(mix(blockIdx.x * (kTiles * kTileBytes / 4) + i));
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads through the async proxy
  __syncthreads();

  const std::uint32_t warpgroup = threadIdx.x / 128;
  const std::uint64_t a = descriptor(aligned + warpgroup * kM * kRowBytes);
  const std::uint64_t b = descriptor(aligned + kWarpgroups * kM * kRowBytes);
  float d[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) d[i] = 0;
  for (int i = 0; i < iterations; ++i) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < kPerIteration; ++step) {
      constexpr int kSteps = kRowBytes / kInstructionBytes;  // in one tile
      const std::uint64_t offset = (step / kSteps * kTileBytes + step % kSteps * kInstructionBytes) / 16;
      wgmma<kOperand>(d, a + offset, b + offset);
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // one iteration stays in flight
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += d[i];
  if (sum == 12345.678f) *sink = sum;  // never so, which the compiler cannot know
}

template <Operand kOperand, int kDepth>
double wgmma_rate_of(const Gpu& gpu) {
  const DeviceMemory sink(sizeof(float));
  check(cudaFuncSetAttribute(wgmma_kernel<kOperand>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
        "cudaFuncSetAttribute of wgmma_kernel");
  const double seconds = median_seconds_per_iteration(gpu, [&](int iterations) {
    wgmma_kernel<kOperand><<<gpu.sm_count, kThreads, kSharedBytes, gpu.stream>>>(sink.as<float>(), iterations);
    check(cudaGetLastError(), "wgmma_kernel");
  });
  return 2.0 * kM * kN * kDepth * kPerIteration * kWarpgroups * gpu.sm_count / seconds;
}

}  // namespace

double wgmma_rate(const Gpu& gpu, Operand operand) {
  if (gpu.compute_capability != 90) return 0;
  switch (operand) {
    case Operand::bf16:
      return wgmma_rate_of<Operand::bf16, 16>(gpu);
    case Operand::fp16:
      return wgmma_rate_of<Operand::fp16, 16>(gpu);
    case Operand::tf32:
      return wgmma_rate_of<Operand::tf32, 8>(gpu);
    case Operand::fp8:
      return wgmma_rate_of<Operand::fp8, 32>(gpu);
  }
  return 0;
}

}  // namespace noisefloor::ceilings
