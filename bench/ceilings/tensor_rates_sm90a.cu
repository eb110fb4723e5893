// The rate of Hopper's tensor pipe: two warpgroups an SM issue wgmma m64n256 over random tiles in shared memory.
//
// Shared memory: kTiles x (2 x 64 rows of A + 256 rows of B) x 128 bytes = 4 x 48 KiB = 192 KiB. An instruction reads
// 10 KiB (2 of A, 8 of B) in the 128 cycles that the pipe needs for it: 80 of the 128 bytes a cycle that shared memory
// gives. Registers: 128 accumulators a thread. PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
// Instructions".
#include <type_traits>

#include "bench/ceilings/gpu_rates.h"
#include "bench/ceilings/random_operand.cuh"
#include "kernels/ptx/wgmma.cuh"

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

template <Operand kOperand>
using WgmmaType =
    std::conditional_t<kOperand == Operand::bf16, __nv_bfloat16,
                       std::conditional_t<kOperand == Operand::fp16, __half,
                                          std::conditional_t<kOperand == Operand::tf32, ptx::Tf32, ptx::E4m3>>>;

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
  const std::uint64_t a = ptx::wgmma_descriptor_128b(aligned + warpgroup * kM * kRowBytes);
  const std::uint64_t b = ptx::wgmma_descriptor_128b(aligned + kWarpgroups * kM * kRowBytes);
  float d[128];
#pragma unroll
  for (int i = 0; i < 128; ++i) d[i] = 0;
  for (int i = 0; i < iterations; ++i) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kPerIteration; ++step) {
      constexpr int kSteps = kRowBytes / kInstructionBytes;  // in one tile
      const std::uint64_t offset = (step / kSteps * kTileBytes + step % kSteps * kInstructionBytes) / 16;
      ptx::Wgmma<WgmmaType<kOperand>, kN>::run(d, a + offset, b + offset, 1);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // one iteration stays in flight
  }
  ptx::wgmma_wait<0>();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 128; ++i) sum += d[i];
  if (sum == 12345.678f) *sink = sum;  // never so, which the compiler cannot know
}

template <Operand kOperand, int kDepth>
double wgmma_rate_of(const Gpu& gpu) {
  const Buffer sink(*gpu.platform, sizeof(float));
  CUDA_CHECK(cudaFuncSetAttribute(wgmma_kernel<kOperand>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const double seconds = median_seconds_per_iteration(gpu, [&](int iterations) {
    wgmma_kernel<kOperand><<<gpu.sm_count, kThreads, kSharedBytes, gpu.stream>>>(sink.as<float>(), iterations);
    CUDA_CHECK(cudaGetLastError());
  });
  return 2.0 * kM * kN * kDepth * kPerIteration * kWarpgroups * gpu.sm_count / seconds;
}

}  // namespace

double wgmma_rate(const Gpu& gpu, Operand operand) {
  if (gpu.compute_capability != 90) return 0;
  constexpr decltype(&wgmma_rate_of<Operand::bf16, 16>) kRates[] = {
      wgmma_rate_of<Operand::bf16, 16>, wgmma_rate_of<Operand::fp16, 16>, wgmma_rate_of<Operand::tf32, 8>,
      wgmma_rate_of<Operand::fp8, 32>};
  return kRates[static_cast<int>(operand)](gpu);
}

}  // namespace noisefloor::ceilings
