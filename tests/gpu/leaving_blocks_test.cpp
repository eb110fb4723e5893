// Blocks that share loads by multicast and leave behind a short epilogue. A block that left too soon would fail few
// launches, so there are many (docs/log/convolution/2026-11-26-arrivals-on-a-block-that-left.md).
#include "tests/support/catalogue_cases.h"

namespace noisefloor {
namespace {

constexpr int kGraphs = 50, kLaunchesOfGraph = 400;

// Problems of which each tile has few k-steps and few outputs, for every kernel with multicast.
struct Short {
  const char *op, *problem, *variant;
};
constexpr Short kShort[] = {
    {"conv2d", "n=160,h=16,w=16,cin=16,cout=1", "ptx_sm90a"},
    {"conv2d", "n=160,h=16,w=16,cin=16,cout=8", "ptx_sm90a_halo"},
    {"gemm", "m=40960,n=8,k=64", "ptx_sm90a"},
    {"gemm", "m=40960,n=8,k=64,residual=1", "ptx_sm90a"},
};

constexpr const char* kColumns = "columns=32,";  // the smallest tiles

bool has(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

class LeavingBlocks : public testing::TestWithParam<Short> {};

TEST_P(LeavingBlocks, StayForTheirNeighbours) {
  static const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  const auto [op, text, name] = GetParam();
  const SuiteEntry& entry = *suite().find(op);
  const AnyProblem problem = entry.workload->parse(text);
  const auto implementation =
      std::ranges::find_if(entry.implementations, [&](const ImplementationPtr& one) { return one->name == name; });
  ASSERT_NE(implementation, entry.implementations.end());
  if (!cannot_run_on(*platform, **implementation).empty()) GTEST_SKIP() << cannot_run_on(*platform, **implementation);
  ASSERT_TRUE((*implementation)->can_run(problem, DType::bf16));
  Fixture fixture(*platform, entry, problem, DType::bf16, /*seed=*/1);
  const AnyVariant& right = *(*implementation)->variant();
  int ways = 0;
  for (const Choice& choice : right.choices->list(problem, DType::bf16, platform->description().info)) {
    if (!has(choice.text, "multicast=2,splits=1") || !has(choice.text, kColumns)) continue;
    SCOPED_TRACE(choice.text);
    AnyVariant variant = right;
    variant.launch = [chosen = choice.text, launch = right.choices->launch](
                         const AnyProblem& p, DType dtype, std::span<void* const> pointers, const Scratch& scratch,
                         const LaunchContext& context) { return launch(p, dtype, pointers, scratch, context, chosen); };
    const ImplementationPtr made = implementation_of(variant);
    BoundCase bound(fixture, *made);
    EXPECT_NO_THROW(platform->time_warm(bound.launch(), kGraphs, kLaunchesOfGraph));
    ++ways;
  }
  EXPECT_GT(ways, 0);
}

INSTANTIATE_TEST_SUITE_P(Gpu, LeavingBlocks, testing::ValuesIn(kShort),
                         [](const auto& one) { return std::string(one.param.op) + "_" + std::to_string(one.index); });

}  // namespace
}  // namespace noisefloor
