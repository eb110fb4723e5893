// Verification on the host: right variants pass, and each way of being wrong is caught, in every op.
#include <gtest/gtest.h>

#include <cmath>

#include "bench/measure/case_runner.h"
#include "bench/measure/verify.h"
#include "tests/support/test_problems.h"
#include "tests/support/wrong_variants.h"

namespace noisefloor {
namespace {

Platform& host() {
  static const std::unique_ptr<Platform> platform = make_host_platform();
  return *platform;
}

const std::vector<ProblemEntry>& problems() {
  static const auto all = load_problems(test_problem_folder());
  return all;
}

Candidate host_candidate(const Op& op) {
  for (const Candidate& candidate : candidates_of(op))
    if (candidate.kind == Kind::host) return candidate;
  ADD_FAILURE() << op.name << " has no host variant";
  return {};
}

class HostVerification : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Ops, HostVerification, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const Op& op : catalogue()) names.push_back(op.name);
                           return names;
                         }()));

TEST_P(HostVerification, HostVariantMatchesTheOracle) {
  const Op& op = *find_op(GetParam());
  const Candidate candidate = host_candidate(op);
  int ran = 0;
  for (const ProblemEntry& entry : problems()) {
    if (entry.op != &op || op.cost(entry.problem, DType::bf16).flops > 2e9) continue;
    for (const DType dtype : op.dtypes) {
      if (!candidate.can_run(entry.problem, dtype)) continue;
      SCOPED_TRACE(entry.text + " " + to_string(dtype));
      Fixture fixture(host(), op, entry.problem, dtype, 5);
      BoundCase bound(fixture, candidate);
      const Verdict verdict = Verifier(fixture, 5e7).verify(bound);
      EXPECT_TRUE(verdict.correct) << verdict.reason;
      EXPECT_GT(verdict.tolerance, 0);
      ++ran;
    }
  }
  EXPECT_GT(ran, 0);
}

TEST_P(HostVerification, WrongVariantsAreCaught) {
  const Op& op = *find_op(GetParam());
  const Candidate right = host_candidate(op);
  for (const ProblemEntry& entry : problems()) {
    if (entry.op != &op || op.cost(entry.problem, DType::bf16).flops > 1e8) continue;
    for (const DType dtype : op.dtypes) {
      for (const Tampering tampering : kAllTamperings) {
        SCOPED_TRACE(entry.text + " " + to_string(dtype) + ": " + to_string(tampering));
        Fixture fixture(host(), op, entry.problem, dtype, 1);
        const AnyVariant wrong = wrong_variant(*right.variant, tampering, fixture);
        Candidate candidate = right;
        candidate.variant = &wrong;
        BoundCase bound(fixture, candidate);
        const Verdict verdict = Verifier(fixture).verify(bound);
        EXPECT_FALSE(verdict.correct);
        EXPECT_NE(verdict.reason, "");
      }
    }
  }
}

TEST(Verification, NamesTheTensorThatWasOverrun) {
  const Op& op = *find_op("gemm");
  const Candidate right = host_candidate(op);
  Fixture fixture(host(), op, op.parse("m=5,n=7,k=3"), DType::fp32, 1);
  const AnyVariant wrong = wrong_variant(*right.variant, Tampering::past_the_end, fixture);
  Candidate candidate = right;
  candidate.variant = &wrong;
  BoundCase bound(fixture, candidate);
  EXPECT_EQ(Verifier(fixture).verify(bound).reason, "wrote outside tensor 'd'");
}

// Right when it is verified, wrong in the timed launches: the row must say so and carry no time.
TEST(Verification, LaunchesThatGoWrongLaterAreCaught) {
  const Op& op = *find_op("gemm");
  const Candidate right = host_candidate(op);
  auto launches = std::make_shared<int>(0);
  AnyVariant wrong = *right.variant;
  wrong.launch = [launches, launch = right.variant->launch](const AnyProblem& problem, DType dtype,
                                                            std::span<void* const> pointers, const Scratch& scratch,
                                                            const LaunchContext& context) {
    const Status status = launch(problem, dtype, pointers, scratch, context);
    if (++*launches > 2) store_element(dtype, pointers.back(), 3, 1e3);
    return status;
  };
  Candidate candidate = right;
  candidate.variant = &wrong;
  RunnerOptions options;
  options.cold.wall_seconds = options.warm.wall_seconds = 0.05;
  CaseRunner runner(host(), nullptr, options);
  const CaseResult result = runner.run({candidate, op.parse("m=8,n=8,k=8"), DType::fp32, "m=8,n=8,k=8", ""});
  EXPECT_EQ(result.row.status, Outcome::incorrect);
  EXPECT_EQ(result.row.reason.rfind("after the timed launches: d[3] is", 0), 0u) << result.row.reason;
  EXPECT_FALSE(result.row.time_cold_us.has_value());
  EXPECT_FALSE(result.row.gflops.has_value());
}

// What lies beyond an input is NaN, so that a result made from it cannot pass.
TEST(Verification, ReadingPastAnInputShows) {
  const Op& op = *find_op("gemm");
  const Fixture fixture(host(), op, op.parse("m=5,n=7,k=3"), DType::bf16, 1);
  for (std::size_t i = 0; i < fixture.specs().size(); ++i) {
    EXPECT_TRUE(std::isnan(load_element(DType::bf16, fixture.pointers()[i], -1)));
    EXPECT_TRUE(std::isnan(load_element(DType::bf16, fixture.pointers()[i], fixture.specs()[i].elements())));
  }
}

TEST(Verification, InputsDependOnTheSeedAlone) {
  const Op& op = *find_op("gemm");
  const AnyProblem problem = op.parse("m=9,n=11,k=13");
  Fixture a(host(), op, problem, DType::bf16, 1), b(host(), op, problem, DType::bf16, 1),
      c(host(), op, problem, DType::bf16, 2);
  const auto sum = [](Fixture& fixture) { return host().checksum(fixture.pointers()[0], fixture.specs()[0].bytes()); };
  EXPECT_EQ(sum(a), sum(b));
  EXPECT_NE(sum(a), sum(c));
}

TEST(Platform, ComparisonSeesNaN) {
  const float a[] = {1, 2, std::numeric_limits<float>::quiet_NaN(), 4}, b[] = {1, 2, 3, 4};
  const Difference difference = host().compare(DType::fp32, a, b, 4, 1);
  EXPECT_FALSE(difference.all_finite);
  EXPECT_EQ(difference.worst, 2);
}

TEST(Platform, TooLargeAnAllocationIsOutOfMemory) {
  EXPECT_THROW(host().allocate(std::size_t{1} << 60), OutOfMemory);
}

}  // namespace
}  // namespace noisefloor
