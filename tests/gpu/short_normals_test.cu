// The short transform of kernels/device/short_normals.cuh against the definition in double: every word as a length, and
// every word as a turn.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "kernels/device/short_normals.cuh"

namespace noisefloor {
namespace {

constexpr unsigned kNormalsThreads = 256;
constexpr unsigned kNormalsBlocks = (1u << 30) / kNormalsThreads;  // four lengths a thread

// *worst: the largest |z - exact| as the bits of a float, which order as the floats do; NaN counts as 1.
__global__ void __launch_bounds__(kNormalsThreads) worst_error_kernel(unsigned* worst) {
  const std::uint32_t first = 4 * (blockIdx.x * kNormalsThreads + threadIdx.x);
  EightWords words;
  for (std::uint32_t i = 0; i < 4; ++i) {
    words.lengths[i] = first + i;
    words.turns[i] = (first + i) * 0x9E3779B1u;  // odd: each word once
  }
  float z[8];
  short_normals(words, kRootTwoLn2).write(z);
  float largest = 0;
  for (int i = 0; i < 4; ++i) {
    const double radius = sqrt(-2 * log(static_cast<double>(philox_uniform(words.lengths[i]))));
    double sine, cosine;
    sincospi(static_cast<double>(static_cast<std::int32_t>(words.turns[i])) * 0x1p-31, &sine, &cosine);
    const double error = fmax(fabs(z[2 * i] - radius * cosine), fabs(z[2 * i + 1] - radius * sine));
    const bool number = z[2 * i] == z[2 * i] && z[2 * i + 1] == z[2 * i + 1];
    largest = fmaxf(largest, number ? static_cast<float>(error) : 1.0f);
  }
  for (int lane = 16; lane > 0; lane /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, lane));
  if (threadIdx.x % 32 == 0) atomicMax(worst, __float_as_uint(largest));
}

TEST(ShortNormals, AreNearTheDefinitionForEveryWord) {
  unsigned* worst;
  ASSERT_EQ(cudaMalloc(&worst, sizeof *worst), cudaSuccess);
  ASSERT_EQ(cudaMemset(worst, 0, sizeof *worst), cudaSuccess);
  worst_error_kernel<<<kNormalsBlocks, kNormalsThreads>>>(worst);
  ASSERT_EQ(cudaGetLastError(), cudaSuccess);
  unsigned bits = 0;
  ASSERT_EQ(cudaMemcpy(&bits, worst, sizeof bits, cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(worst);
  const auto error = std::bit_cast<float>(bits);
  RecordProperty("worst", std::to_string(error * 1e6f) + "e-6");
  EXPECT_GT(error, 1e-8);  // the kernel ran
  EXPECT_LT(error, 1e-5);
}

}  // namespace
}  // namespace noisefloor
