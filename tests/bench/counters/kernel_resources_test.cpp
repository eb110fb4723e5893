// Names of kernels as a run keeps them.
#include "bench/counters/kernel_resources.h"

#include <gtest/gtest.h>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

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
