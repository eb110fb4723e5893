#include <gtest/gtest.h>

#include <algorithm>

#include "bench/sweep/problem_files.h"

namespace noisefloor {
namespace {

// What `noisefloor tune` adds to an op's own problems.
TEST(HandedTo, ProductsOfEveryNetworksLayersAndNothingElse) {
  const auto& entries = suite().entries();
  const auto named = [&](const char* name) {
    return std::ranges::find_if(entries, [&](const SuiteEntry& one) { return one.name() == name; });
  };
  const auto gemm = named("gemm"), conv2d = named("conv2d");
  ASSERT_TRUE(gemm != entries.end() && conv2d != entries.end());
  int products = 0;
  for (const ProblemEntry& one : load_problems(default_problem_folder())) {
    EXPECT_FALSE(handed_to(*conv2d, one, DType::bf16)) << one.text;
    const auto text = handed_to(*gemm, one, DType::bf16);
    if (!text) continue;
    ++products;
    EXPECT_EQ(one.entry, &*conv2d) << one.text;
    const AnyProblem product = gemm->workload->parse(*text);  // of the flops of the layer
    EXPECT_EQ(gemm->workload->cost(product, DType::bf16).flops, one.op->cost(one.problem, DType::bf16).flops) << *text;
  }
  EXPECT_GT(products, 40);
}

}  // namespace
}  // namespace noisefloor
