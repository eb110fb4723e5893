// Verification on the host: right variants pass, and each way of being wrong is caught, in every op.
#include <gtest/gtest.h>

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
  EXPECT_FALSE(difference.l2_error <= 1);
}

TEST(Platform, TooLargeAnAllocationIsOutOfMemory) {
  EXPECT_THROW(host().allocate(std::size_t{1} << 60), OutOfMemory);
}

}  // namespace
}  // namespace noisefloor
