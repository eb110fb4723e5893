// Every host variant of every op on every test problem and element type: verified as the sweep verifies, repeatable,
// and caught where it is made wrong. tests/gpu/catalogue_test.cpp asks the same of what runs on a device.
#include "tests/support/catalogue_cases.h"
#include "tests/support/late_variants.h"

namespace noisefloor {
namespace {

// By what a problem costs, in floating-point operations. Host variants compute in fp32 whatever the element type, so
// that larger problems than `in_all_types` are of the op's first one.
constexpr double kVerified = 2e9, kOfEachKind = 1e8;  // below the oracle's limit: it computes every element
constexpr double kInAllTypes = 2e7;
std::vector<CatalogueCase> host_variants(double at_most, double in_all_types) {
  // ctest starts a process for each test of another suite, which needs no cases.
  const std::string wanted = testing::GTEST_FLAG(filter);
  if (wanted.find_first_of("*?-") == wanted.npos && wanted.find("Catalogue/") == wanted.npos) return {};
  return catalogue_cases(
      /*host=*/true, test_problems(), [=](const Implementation&, const ProblemEntry& problem, DType dtype) {
        const double flops = problem.op->cost(problem.problem, DType::bf16).flops;
        return flops <= at_most && (flops <= in_all_types || dtype == problem.op->dtypes.front());
      });
}

class Verified : public testing::TestWithParam<CatalogueCase> {};
INSTANTIATE_TEST_SUITE_P(Catalogue, Verified, testing::ValuesIn(one_by_one(host_variants(kVerified, kInAllTypes))),
                         problem_name);

TEST_P(Verified, MatchesTheOracle) {
  for_each_problem(GetParam(), [](const ProblemEntry& problem, DType dtype) {
    Fixture fixture(host(), *GetParam().entry, problem.problem, dtype, 5);
    BoundCase bound(fixture, *GetParam().implementation);
    const Verdict verdict = Verifier(fixture, {.oracle_flops = 5e7}).verify(bound);
    EXPECT_TRUE(verdict.correct()) << verdict.reason;
    EXPECT_GT(verdict.tolerance, 0);
  });
}

class OfEachKind : public testing::TestWithParam<CatalogueCase> {};
INSTANTIATE_TEST_SUITE_P(Catalogue, OfEachKind,
                         testing::ValuesIn(cheapest_of_each_kind(host_variants(kOfEachKind, kOfEachKind))), case_name);

// Threads take chunks in any order, and none adds to what another one sums.
TEST_P(OfEachKind, IsDeterministic) {
  for_each_problem(GetParam(), [](const ProblemEntry& problem, DType dtype) {
    expect_repeatable(host(), GetParam(), problem, dtype);
  });
}

TEST_P(OfEachKind, WrongOnPurposeIsCaught) {
  for_each_problem(GetParam(), [](const ProblemEntry& problem, DType dtype) {
    expect_wrong_is_caught(host(), GetParam(), problem, dtype, VerifierOptions{}.oracle_flops);
  });
}

class Cheapest : public testing::TestWithParam<CatalogueCase> {};
INSTANTIATE_TEST_SUITE_P(Catalogue, Cheapest, testing::ValuesIn(cheapest(host_variants(kOfEachKind, kOfEachKind))),
                         case_name);

TEST_P(Cheapest, WrongInTimedLaunchesIsCaught) {
  for_each_problem(GetParam(), [](const ProblemEntry& problem, DType dtype) {
    expect_late_is_caught(host(), GetParam(), problem, dtype, nullptr);
  });
}

// The file that a new op lacks, by its name.
TEST(Catalogue, EveryOpHasTestProblems) {
  for (const Op& op : catalogue())
    EXPECT_TRUE(std::filesystem::exists(test_problem_folder() / (op.name + ".csv")))
        << "write tests/problems/" << op.name << ".csv (tests/problems/README.md says how)";
}

}  // namespace
}  // namespace noisefloor
