// Names of kernels as a run keeps them.
#include "bench/counters/kernel_resources.h"

#include <gtest/gtest.h>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

constexpr SmLimits kHopper{.count = 132,
                           .threads = 2048,
                           .blocks = 32,
                           .registers = 65536,
                           .shared_bytes = 233472,
                           .shared_bytes_reserved = 1024};

KernelResources kernel_of(unsigned blocks, unsigned threads, int registers, std::size_t shared, int blocks_per_sm) {
  KernelResources kernel;
  kernel.grid = {blocks, 1, 1}, kernel.block = {threads, 1, 1};
  kernel.registers = registers, kernel.static_shared_bytes = shared, kernel.blocks_per_sm = blocks_per_sm;
  complete_occupancy(kernel, kHopper);
  return kernel;
}

TEST(Occupancy, NamesWhatOneMoreBlockWouldExceed) {
  EXPECT_EQ(kernel_of(1, 256, 168, 100000, 1).occupancy_limiter, "registers")
      << "two blocks of 8 warps x 168 x 32 registers";
  EXPECT_EQ(kernel_of(1, 128, 64, 208472, 1).occupancy_limiter, "shared memory");
  EXPECT_EQ(kernel_of(1, 384, 168, 208472, 1).occupancy_limiter, "registers and shared memory");
  EXPECT_EQ(kernel_of(1, 1024, 32, 0, 2).occupancy_limiter, "threads and registers");
  EXPECT_EQ(kernel_of(1, 1024, 16, 0, 2).occupancy_limiter, "threads");
  EXPECT_EQ(kernel_of(1, 32, 32, 0, 32).occupancy_limiter, "blocks");
}

TEST(Occupancy, CountsWavesAndWarps) {
  const KernelResources kernel = kernel_of(400, 200, 64, 1000, 4);
  EXPECT_DOUBLE_EQ(kernel.occupancy_limit_pct, 100.0 * 4 * 7 / 64) << "200 threads are 7 warps";
  EXPECT_DOUBLE_EQ(kernel.waves, 400.0 / (4 * 132));
  EXPECT_DOUBLE_EQ(kernel.resident_bytes, 400.0 * (4 * 64 * 224 + 1000)) << "all blocks fit";
  EXPECT_DOUBLE_EQ(kernel_of(1000, 200, 64, 1000, 4).resident_bytes, 4 * 132.0 * (4 * 64 * 224 + 1000));
  EXPECT_EQ(kernel_of(8, 64, 32, 0, 0).waves, 0) << "a kernel that does not fit";
  EXPECT_EQ(dominant_kernel({}), nullptr);
}

TEST(KernelName, IsShortAndKeepsItsTemplateArguments) {
  const std::pair<const char*, const char*> names[] = {
      {"void noisefloor::attention::(anonymous namespace)::attention_tiled<__half, noisefloor::attention::(anonymous "
       "namespace)::Tile<128, 4, 32> >(noisefloor::attention::Shape, __half const*, float*)",
       "attention::attention_tiled<__half, attention::Tile<128, 4, 32> >"},
      {"noisefloor::harness::fill(float*, long)", "harness::fill"},
      {"void cutlass::Kernel2<cutlass_80_tensorop_bf16_relu>(cutlass_80_tensorop_bf16_relu::Params)",
       "cutlass::Kernel2<cutlass_80_tensorop_bf16_relu>"},
      {"void at::native::elementwise<4, at::native::gpu(T, T const&)::{lambda(int)#1}>(int, "
       "at::native::gpu(T)::{lambda(int)#1})",
       "at::native::elementwise<4, at::native::gpu(T, T const&)::{lambda(int)#1}>"},
      {"sm90_xmma_gemm_bf16bf16_tn_n_tilesize128x128x64_cublas",
       "sm90_xmma_gemm_bf16bf16_tn_n_tilesize128x128x64_cublas"},
      {"", ""},
      {")", ")"},
  };
  for (const auto& [demangled, expected] : names) EXPECT_EQ(short_kernel_name(demangled), expected);
}

TEST(KernelName, TellsTheKernelsOfABuildApart) {
  const CsvFile csv = read_csv("reports/recorded/nvidia-h200/kernels.csv");
  for (const CsvLine& line : csv.lines) {
    const std::string name = short_kernel_name(line.fields[csv.column("kernel")]);
    EXPECT_EQ(name.find("anonymous"), std::string::npos);
    EXPECT_NE(name.find("::"), std::string::npos) << name;
    EXPECT_FALSE(name.ends_with(')') || name.starts_with("void ")) << name;
  }
}

}  // namespace
}  // namespace noisefloor
