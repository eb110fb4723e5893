// Rates of the FP32 pipe and, by mma.sync, of the tensor pipe: long loops in registers over independent accumulators.
//
// mma.sync reaches the full rate of sm_75 to sm_89. Hopper's full rate needs wgmma (tensor_rates_sm90a.cu); on
// Blackwell, whose full rate needs tcgen05, what is measured here is what mma.sync kernels can reach.
#include "bench/ceilings/gpu_rates.h"
#include "bench/ceilings/random_operand.cuh"

namespace noisefloor::ceilings {
namespace {

constexpr int kThreads = 256;
constexpr int kFmaChains = 16;  // independent multiply-adds a thread: more than the pipe's latency needs
constexpr int kFmaUnroll = 8;
constexpr int kFmaBlocksPerSm = 4;  // 1024 threads an SM: 8 warps for each of the 4 schedulers

__global__ void __launch_bounds__(kThreads) fma_kernel(float* sink, int iterations) {
  const unsigned id = blockIdx.x * kThreads + threadIdx.x;
  const auto uniform = [id](unsigned salt) { return static_cast<float>(mix(id * 64 + salt)) * 0x1p-32f; };
  float values[kFmaChains];
#pragma unroll
  for (int j = 0; j < kFmaChains; ++j) values[j] = uniform(j) - 0.5f;
  // Factors below 1 keep the values bounded; two of them keep the values from settling.
  const float factors[2] = {0.3f + 0.5f * uniform(61), -0.3f - 0.5f * uniform(62)};
  const float shift = uniform(63) - 0.5f;
  for (int i = 0; i < iterations; ++i) {
#pragma unroll
    for (int u = 0; u < kFmaUnroll; ++u) {
#pragma unroll
      for (int j = 0; j < kFmaChains; ++j) values[j] = fmaf(values[j], factors[u % 2], shift);
    }
  }
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kFmaChains; ++j) sum += values[j];
  if (sum == 12345.678f) *sink = sum;  // never so, which the compiler cannot know
}

// d += A B for one warp. Registers as the PTX ISA lists them for each shape; `k` elements deep.
template <Operand kOperand>
struct Mma;

#define NOISEFLOOR_MMA(operand, depth, since, shape)                                                            \
  template <>                                                                                                   \
  struct Mma<Operand::operand> {                                                                                \
    static constexpr int k = depth, kSince = since;                                                             \
    static __device__ __forceinline__ void run(float (&d)[4], const std::uint32_t (&a)[4],                      \
                                               const std::uint32_t (&b)[2]) {                                   \
      asm volatile("mma.sync.aligned." shape " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                   : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                             \
                   : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));                         \
    }                                                                                                           \
  };
NOISEFLOOR_MMA(bf16, 16, 800, "m16n8k16.row.col.f32.bf16.bf16.f32")
NOISEFLOOR_MMA(tf32, 8, 800, "m16n8k8.row.col.f32.tf32.tf32.f32")
NOISEFLOOR_MMA(fp8, 32, 890, "m16n8k32.row.col.f32.e4m3.e4m3.f32")

// On sm_75 the shape is half as deep: two of them do the same work.
#if __CUDA_ARCH__ >= 800
NOISEFLOOR_MMA(fp16, 16, 750, "m16n8k16.row.col.f32.f16.f16.f32")
#else
template <>
struct Mma<Operand::fp16> {
  static constexpr int k = 16, kSince = 750;
  static __device__ __forceinline__ void run(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a[2 * half]), "r"(a[2 * half + 1]), "r"(b[half]));
  }
};
#endif

// A warp multiplies kMmaRows fragments of A by kMmaColumns of B into as many independent accumulators, over and over.
constexpr int kMmaRows = 2;
constexpr int kMmaColumns = 4;
constexpr int kMmaUnroll = 4;
constexpr int kMmaBlocksPerSm = 2;  // 16 warps an SM: 4 for each of the 4 tensor pipes

template <Operand kOperand>
__global__ void __launch_bounds__(kThreads) mma_kernel(float* sink, int iterations) {
#if __CUDA_ARCH__ >= 750
  if constexpr (__CUDA_ARCH__ >= Mma<kOperand>::kSince) {
    const unsigned id = (blockIdx.x * kThreads + threadIdx.x) * 32;
    std::uint32_t a[kMmaRows][4], b[kMmaColumns][2];
#pragma unroll
    for (int i = 0; i < kMmaRows * 4; ++i) a[i / 4][i % 4] = random_operands<kOperand>(mix(id + i));
#pragma unroll
    for (int i = 0; i < kMmaColumns * 2; ++i) b[i / 2][i % 2] = random_operands<kOperand>(mix(id + 16 + i));
    float d[kMmaRows][kMmaColumns][4] = {};
    for (int i = 0; i < iterations; ++i) {
#pragma unroll
      for (int u = 0; u < kMmaUnroll; ++u) {
#pragma unroll
        for (int row = 0; row < kMmaRows; ++row) {
#pragma unroll
          for (int column = 0; column < kMmaColumns; ++column) Mma<kOperand>::run(d[row][column], a[row], b[column]);
        }
      }
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMmaRows * kMmaColumns * 4; ++i) sum += d[i / 16][i / 4 % 4][i % 4];
    if (sum == 12345.678f) *sink = sum;  // never so, which the compiler cannot know
  }
#endif
}

template <Operand kOperand>
double mma_rate_of(const Gpu& gpu) {
  if (gpu.compute_capability * 10 < Mma<kOperand>::kSince) return 0;
  const Buffer sink(*gpu.platform, sizeof(float));
  const int blocks = gpu.sm_count * kMmaBlocksPerSm;
  const double seconds = median_seconds_per_iteration(gpu, [&](int iterations) {
    mma_kernel<kOperand><<<blocks, kThreads, 0, gpu.stream>>>(sink.as<float>(), iterations);
    CUDA_CHECK(cudaGetLastError());
  });
  constexpr double kFlops = 2.0 * 16 * 8 * Mma<kOperand>::k;
  return kFlops * kMmaRows * kMmaColumns * kMmaUnroll * (kThreads / 32) * blocks / seconds;
}

}  // namespace

double fma_rate(const Gpu& gpu) {
  const Buffer sink(*gpu.platform, sizeof(float));
  const int blocks = gpu.sm_count * kFmaBlocksPerSm;
  const double seconds = median_seconds_per_iteration(gpu, [&](int iterations) {
    fma_kernel<<<blocks, kThreads, 0, gpu.stream>>>(sink.as<float>(), iterations);
    CUDA_CHECK(cudaGetLastError());
  });
  return 2.0 * kFmaChains * kFmaUnroll * kThreads * blocks / seconds;
}

double mma_rate(const Gpu& gpu, Operand operand) {
  constexpr decltype(&mma_rate_of<Operand::bf16>) kRates[] = {mma_rate_of<Operand::bf16>, mma_rate_of<Operand::fp16>,
                                                              mma_rate_of<Operand::tf32>, mma_rate_of<Operand::fp8>};
  return kRates[static_cast<int>(operand)](gpu);
}

}  // namespace noisefloor::ceilings
