// Counters without a GPU: the table of metrics, what CUPTI's errors are turned into, and kernels' limits and names.
#include "bench/counters/range_profiler.h"

#include <gtest/gtest.h>

#include <set>

#include "bench/counters/counter_status.h"
#include "bench/counters/kernel_resources.h"
#include "bench/measure/case_result.h"
#include "reports/run/columns.h"

namespace noisefloor {
namespace {

TEST(Metrics, RowMetricsAreTheColumnsOfASweep) {
  std::set<std::string> filled;
  SweepRow row;
  for (const Metric& candidate : kRowMetrics)
    for (const SweepColumn& column : sweep_columns()) {
      if (column.name != std::string(candidate.name)) continue;
      column.fill(row, 7);
      EXPECT_EQ(column.number(row), 7) << column.name;
      EXPECT_TRUE(column.is(ColumnInfo::kCounter)) << column.name;
      filled.insert(column.name);
    }
  EXPECT_EQ(filled.size(), kRowMetrics.size()) << "a metric of rows is not a column";
  for (const char* name : {"dram_read_bytes", "dram_write_bytes", "l2_bytes", "occupancy_pct", "tensor_pipe_pct"})
    EXPECT_TRUE(filled.contains(name)) << name;
}

TEST(CounterStatus, ErrorsSayWhatToDo) {
  const struct {
    int result;
    CounterStatus status;
    const char* words;
  } cases[] = {{26, CounterStatus::busy, "another profiler"},
               {33, CounterStatus::unsupported_device, "virtualised"},
               {35, CounterStatus::no_permission, "NVreg_RestrictProfilingToAdminUsers=0"},
               {40, CounterStatus::no_permission, "administrator"},
               {43, CounterStatus::unsupported_device, "MIG"},
               {46, CounterStatus::unsupported_chip, "chip"},
               {999, CounterStatus::failed, "CUPTI failed"}};
  for (const auto& one : cases) {
    const CountersUnavailable error = counters_unavailable(one.result, "cuptiSomeCall");
    EXPECT_EQ(error.status(), one.status) << one.result;
    for (const std::string& words : {std::string(one.words), std::to_string(one.result), std::string("cuptiSomeCall")})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// ---- kernels: what limits them, and their names as a run keeps them

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

// As an op whose k is split: a product that fills an SM by its shared memory, and a sum of its parts that fits often.
TEST(Occupancy, OfSeveralKernelsIsTheLargest) {
  KernelResources product, sum;
  product.grid = {96, 1, 1}, product.block = {128, 1, 1}, product.registers = 128;
  product.dynamic_shared_bytes = 73728, product.static_shared_bytes = 1000, product.local_bytes = 16;
  product.blocks_per_sm = 3;
  sum.grid = {384, 1, 1}, sum.block = {256, 1, 1}, sum.registers = 32, sum.blocks_per_sm = 8;
  complete_occupancy(product, kHopper);
  complete_occupancy(sum, kHopper);
  for (const auto& kernels : {std::vector{product, sum}, std::vector{sum, product}}) {
    SweepRow row;
    take_resources(*dominant_kernel(kernels), row);
    EXPECT_EQ(row.occupancy_limit_pct, 18.75) << "the sum alone would have 100";
    EXPECT_EQ(row.occupancy_limiter, "shared memory");
    EXPECT_EQ(row.registers, 128);
    EXPECT_EQ(row.blocks, 96);
    EXPECT_EQ(row.threads, 128);
    EXPECT_EQ(row.smem_bytes, 73728 + 1000);
    EXPECT_EQ(row.spill_bytes, 16);
    EXPECT_EQ(row.waves, 96 / (3.0 * 132));
  }
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

}  // namespace
}  // namespace noisefloor
