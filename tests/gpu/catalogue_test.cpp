// Every variant and baseline of every op on every test problem and dtype: verified as the sweep verifies, on a device.
// Also repeatable, and caught where they are made wrong. NOISEFLOOR_TEST_PROBLEMS=tiny,ragged keeps to problems of
// those kinds, NOISEFLOOR_TEST_DTYPES=bf16 to those dtypes: under a sanitizer all of them take hours.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>

#include "bench/commands/commands.h"
#include "kernels/product/sm90a_schedule.h"
#include "tests/support/catalogue_cases.h"
#include "tests/support/first_gpu.h"
#include "tests/support/late_variants.h"

namespace noisefloor {
namespace {

const std::vector<ProblemEntry>& problems() {
  static const auto chosen = [] {
    const char* names = std::getenv("NOISEFLOOR_TEST_PROBLEMS");
    return names == nullptr ? test_problems() : in_networks(test_problems(), split_list(names));
  }();
  return chosen;
}

bool dtype_chosen(DType dtype) {
  static const auto chosen = [] {
    const char* names = std::getenv("NOISEFLOOR_TEST_DTYPES");
    return names == nullptr ? std::vector<std::string>{} : split_list(names);
  }();
  return chosen.empty() || std::find(chosen.begin(), chosen.end(), to_string(dtype)) != chosen.end();
}

// Why a case is not tried: it cannot run here, or whoever asked for some problems left it none. Without such a wish a
// variant with no problem is a failure.
std::string left_out(const CatalogueCase& one) {
  const bool asked =
      std::getenv("NOISEFLOOR_TEST_PROBLEMS") != nullptr || std::getenv("NOISEFLOOR_TEST_DTYPES") != nullptr;
  if (asked && one.on.empty()) return "none of the problems and dtypes that were asked for are for it";
  return cannot_run_on(device(), *one.implementation);
}

class Verified : public testing::TestWithParam<CatalogueCase> {};
// Libraries tune for a second or more per problem, and their kernels are not what is tested here: bf16 will do.
INSTANTIATE_TEST_SUITE_P(Gpu, Verified,
                         testing::ValuesIn(one_by_one(catalogue_cases(
                             /*host=*/false, problems(),
                             [](const Implementation& implementation, const ProblemEntry&, DType dtype) {
                               return dtype_chosen(dtype) && (implementation.own() || dtype == DType::bf16);
                             }))),
                         problem_name);

TEST_P(Verified, MatchesTheOracle) {
  const Implementation& implementation = *GetParam().implementation;
  if (const std::string why = left_out(GetParam()); !why.empty()) GTEST_SKIP() << why;
  if (!implementation.own() && GetParam().on.empty()) GTEST_SKIP() << "the library refuses every problem";
  std::string refused;
  for_each_problem(GetParam(), [&](const ProblemEntry& problem, DType dtype) {
    for (std::uint64_t seed = 1; seed <= (implementation.own() ? 2 : 1); ++seed) {
      Fixture fixture(device(), *GetParam().entry, problem.problem, dtype, seed);
      Verifier verifier(fixture, {.oracle_flops = 2e8});
      std::unique_ptr<BoundCase> bound;
      try {
        bound = std::make_unique<BoundCase>(fixture, implementation, &verifier);
      } catch (const DeviceError&) {
        throw;
      } catch (const std::runtime_error& error) {
        ASSERT_FALSE(implementation.own()) << error.what();  // a library may refuse; ours may not
        refused = error.what();
        return;
      }
      const Verdict verdict = verifier.verify(*bound);
      EXPECT_TRUE(verdict.correct()) << verdict.reason;
      if (implementation.own()) continue;
      verifier.expect();  // what it chose for warm caches may be another algorithm
      throw_if_failed(bound->launch(/*overlapping=*/true)());
      device().synchronize();
      const Verdict warm = verifier.judge(*bound);
      EXPECT_TRUE(warm.correct()) << "warm: " << warm.reason;
    }
  });
  if (!refused.empty()) GTEST_SKIP() << refused;
}

class Own : public testing::TestWithParam<CatalogueCase> {};
INSTANTIATE_TEST_SUITE_P(Gpu, Own, testing::ValuesIn(own_device_cases(problems(), dtype_chosen)), case_name);

TEST_P(Own, IsDeterministic) {
  if (const std::string why = left_out(GetParam()); !why.empty()) GTEST_SKIP() << why;
  for_each_problem(GetParam(), [](const ProblemEntry& problem, DType dtype) {
    expect_repeatable(device(), GetParam(), problem, dtype);
  });
}

// The naive variant made wrong on every problem, the others on their smallest ones.
TEST_P(Own, WrongOnPurposeIsCaught) {
  if (const std::string why = left_out(GetParam()); !why.empty()) GTEST_SKIP() << why;
  constexpr std::size_t kSmallest = 4;
  CatalogueCase one = GetParam();
  if (!one.implementation->is(Kind::naive)) {
    std::stable_sort(one.on.begin(), one.on.end(), [](const auto& a, const auto& b) {
      return a.first->op->cost(a.first->problem, a.second).flops < b.first->op->cost(b.first->problem, b.second).flops;
    });
    one.on.resize(std::min(one.on.size(), kSmallest));
  }
  // An oracle so small that the larger problems are sampled.
  for_each_problem(one, [&](const ProblemEntry& problem, DType dtype) {
    expect_wrong_is_caught(device(), one, problem, dtype, /*oracle_flops=*/1e7);
  });
}

// Variants that choose how to cut a problem, by every choice that they have (evenly spaced ones where there are many).
std::vector<CatalogueCase> with_choices() {
  auto cases = own_device_cases(problems(), dtype_chosen);
  std::erase_if(cases, [](const CatalogueCase& one) {
    return one.implementation->variant() == nullptr || !one.implementation->variant()->choices;
  });
  return one_by_one(cases);
}

class Choices : public testing::TestWithParam<CatalogueCase> {};
INSTANTIATE_TEST_SUITE_P(Gpu, Choices, testing::ValuesIn(with_choices()), problem_name);

TEST_P(Choices, MatchTheOracle) {
  if (const std::string why = left_out(GetParam()); !why.empty()) GTEST_SKIP() << why;
  constexpr std::size_t kMost = 150;
  for_each_problem(GetParam(), [&](const ProblemEntry& problem, DType dtype) {
    const AnyVariant& right = *GetParam().implementation->variant();
    const auto choices = right.choices(problem.problem, dtype, device().description().info);
    const std::size_t step = choices.size() / kMost + 1;
    std::string_view current;
    AnyVariant variant = right;
    bool in_a_network = false;  // which launches early, and whose weights are constant
    variant.launch = [&, launch = right.launch](const AnyProblem& p, DType type, std::span<void* const> pointers,
                                                const Scratch& scratch, LaunchContext context) {
      if (in_a_network) {
        context.programmatic_launch = true;
        context.constant_inputs = std::uint64_t{1} << product::kWeightTensor;
      }
      context.choice = current;
      return launch(p, type, pointers, scratch, context);
    };
    const std::string& op = GetParam().entry->name();
    const bool starts_early = device().description().info.compute_capability >= 90;
    const bool has_weights = op == "gemm" || op.starts_with("conv");
    Fixture fixture(device(), *GetParam().entry, problem.problem, dtype, /*seed=*/1);
    Verifier verifier(fixture, {.oracle_flops = 1e7});
    BoundCase bound(fixture, *implementation_of(variant), &verifier);
    for (std::size_t i = 0; i < choices.size(); i += step) {
      current = choices[i].text;
      for (const bool early : {false, true}) {
        if (early && !(starts_early && has_weights)) break;
        in_a_network = early;
        const Verdict verdict = verifier.verify(bound);
        EXPECT_TRUE(verdict.correct()) << current << (early ? ", in a network: " : ": ") << verdict.reason;
      }
    }
  });
}

// What images of hundreds of MB are to all SMs, these are to seven: they do not fit on chip, and are read again.
TEST(Gpu, groupnorm_ptx_sm90a_grid_on_few_sms) {
  for (const auto& [op, text] :
       {std::pair{"groupnorm", "n=2,hw=50001,channels=48,groups=3,fusion=silu+ss,stats=1"},
        {"groupnorm", "n=3,hw=70001,channels=16,groups=2"},
        {"groupnorm_backward", "n=2,hw=50001,channels=48,groups=3,fusion=silu+ss,packed=1,residual=1"},
        {"groupnorm_backward", "n=1,hw=100001,channels=40,groups=5,fusion=silu"}}) {
    SCOPED_TRACE(text);
    const SuiteEntry& entry = *suite().find(op);
    const auto grid =
        std::ranges::find(entry.implementations, "ptx_sm90a_grid", [](const auto& one) { return one->name; });
    ASSERT_NE(grid, entry.implementations.end());
    if (const std::string why = cannot_run_on(device(), **grid); !why.empty()) GTEST_SKIP() << why;
    AnyVariant variant = *(*grid)->variant();
    variant.launch = [launch = variant.launch](const AnyProblem& p, DType type, std::span<void* const> pointers,
                                               const Scratch& scratch, LaunchContext context) {
      DeviceInfo few = *context.device;
      few.sm_count = 7;
      context.device = &few;
      return launch(p, type, pointers, scratch, context);
    };
    for (const DType dtype : {DType::bf16, DType::fp16}) {
      Fixture fixture(device(), entry, entry.workload->parse(text), dtype, /*seed=*/1);
      Verifier verifier(fixture, {.oracle_flops = 1e7});
      BoundCase bound(fixture, *implementation_of(variant), &verifier);
      const Verdict verdict = verifier.verify(bound);
      EXPECT_TRUE(verdict.correct()) << verdict.reason;
    }
  }
}

bool recording(const LaunchContext& context) {
  cudaStreamCaptureStatus status{};
  EXPECT_EQ(cudaStreamIsCapturing(context.stream, &status), cudaSuccess);
  return status != cudaStreamCaptureStatusNone;
}

class Cheapest : public testing::TestWithParam<CatalogueCase> {};
INSTANTIATE_TEST_SUITE_P(Gpu, Cheapest, testing::ValuesIn(cheapest(own_device_cases(problems(), dtype_chosen))),
                         case_name);

TEST_P(Cheapest, WrongInTimedLaunchesIsCaught) {
  if (const std::string why = left_out(GetParam()); !why.empty()) GTEST_SKIP() << why;
  for_each_problem(GetParam(), [](const ProblemEntry& problem, DType dtype) {
    expect_late_is_caught(device(), GetParam(), problem, dtype, recording);
  });
}

}  // namespace
}  // namespace noisefloor
