// Every variant and baseline of every op on every test problem and dtype: verified as the sweep verifies, on a device.
// NOISEFLOOR_TEST_PROBLEMS=tiny,ragged keeps to problems of those kinds, NOISEFLOOR_TEST_DTYPES=bf16 to those dtypes:
// under a sanitizer all of them take hours.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "bench/commands/commands.h"
#include "bench/measure/verify.h"
#include "tests/support/test_problems.h"
#include "tests/support/wrong_variants.h"

namespace noisefloor {

void PrintTo(const Candidate& candidate, std::ostream* stream) {
  *stream << candidate.op->name << " " << candidate.name;
}

namespace {

Platform& device() {
  static const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  return *platform;
}

const std::vector<ProblemEntry>& problems() {
  static const auto chosen = [] {
    const auto all = load_problems(test_problem_folder());
    const char* names = std::getenv("NOISEFLOOR_TEST_PROBLEMS");
    return names == nullptr ? all : in_networks(all, split_list(names));
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

std::vector<Candidate> device_candidates() {
  std::vector<Candidate> all;
  for (const Op& op : catalogue())
    for (const Candidate& candidate : candidates_of(op))
      if (candidate.kind != Kind::host) all.push_back(candidate);
  return all;
}

std::string test_name(const testing::TestParamInfo<Candidate>& info) {
  return info.param.op->name + "_" + info.param.name;
}

class Catalogue : public testing::TestWithParam<Candidate> {};
INSTANTIATE_TEST_SUITE_P(Gpu, Catalogue, testing::ValuesIn(device_candidates()), test_name);

TEST_P(Catalogue, MatchesTheOracle) {
  const Candidate& candidate = GetParam();
  if (!candidate.built()) GTEST_SKIP() << "not built for this machine's architectures";
  if (!runs_on(candidate.arch, device().description().info.compute_capability))
    GTEST_SKIP() << "needs " << to_string(candidate.arch);
  int ran = 0;
  for (const ProblemEntry& entry : problems()) {
    if (entry.op != candidate.op) continue;
    for (const DType dtype : entry.op->dtypes) {
      if (!dtype_chosen(dtype) || !candidate.can_run(entry.problem, dtype)) continue;
      // Libraries tune for a second or more per problem, and their kernels are not what is tested here.
      const bool library = candidate.kind == Kind::baseline;
      if (library && dtype != DType::bf16) continue;
      SCOPED_TRACE(entry.op->name + " " + entry.text + " " + to_string(dtype) + " " + candidate.name);
      for (std::uint64_t seed = 1; seed <= (library ? 1 : 2); ++seed) {
        Fixture fixture(device(), *entry.op, entry.problem, dtype, seed);
        Verifier verifier(fixture, 2e8);
        std::unique_ptr<BoundCase> bound;
        try {
          bound = std::make_unique<BoundCase>(fixture, candidate);
        } catch (const std::runtime_error& error) {
          ASSERT_TRUE(library) << error.what();  // a library may refuse; ours may not
          break;
        }
        const Verdict verdict = verifier.verify(*bound);
        EXPECT_TRUE(verdict.correct) << verdict.reason;
        ++ran;
      }
    }
  }
  if (candidate.kind == Kind::baseline && ran == 0)
    GTEST_SKIP() << "the library is not on this machine, or refused every problem";
  EXPECT_GT(ran, 0) << "no test problem suits this variant: add one to tests/problems";
}

// A launch is repeatable: the second one, on poisoned outputs, gives the same bits.
TEST_P(Catalogue, IsDeterministic) {
  const Candidate& candidate = GetParam();
  if (candidate.kind == Kind::baseline || !candidate.built() ||
      !runs_on(candidate.arch, device().description().info.compute_capability))
    GTEST_SKIP() << "not a variant of ours that runs here";
  for (const ProblemEntry& entry : problems()) {
    const DType dtype = DType::bf16;
    if (entry.op != candidate.op || !candidate.can_run(entry.problem, dtype)) continue;
    SCOPED_TRACE(entry.text);
    Fixture fixture(device(), *entry.op, entry.problem, dtype, 3);
    BoundCase bound(fixture, candidate);
    std::vector<std::uint64_t> sums[2];
    for (auto& sum : sums) {
      fixture.reset_outputs();
      throw_if_failed(bound.launch()());
      for (std::size_t i = 0; i < fixture.specs().size(); ++i)
        if (fixture.specs()[i].role != Role::in)
          sum.push_back(device().checksum(fixture.pointers()[i], fixture.specs()[i].bytes()));
    }
    EXPECT_EQ(sums[0], sums[1]);
  }
}

class WrongOnPurpose : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Gpu, WrongOnPurpose, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const Op& op : catalogue()) names.push_back(op.name);
                           return names;
                         }()));

TEST_P(WrongOnPurpose, IsCaughtInEveryTestProblem) {
  const Op& op = *find_op(GetParam());
  const auto candidates = candidates_of(op);
  const auto naive =
      std::find_if(candidates.begin(), candidates.end(), [](const Candidate& c) { return c.kind == Kind::naive; });
  ASSERT_NE(naive, candidates.end());
  for (const ProblemEntry& entry : problems()) {
    if (entry.op != &op) continue;
    for (const Tampering tampering : kAllTamperings) {
      SCOPED_TRACE(entry.text + ": " + to_string(tampering));
      Fixture fixture(device(), op, entry.problem, DType::bf16, 1);
      Verifier verifier(fixture, 1e7);  // small enough that the larger problems are sampled
      const AnyVariant wrong = wrong_variant(*naive->variant, tampering, fixture);
      Candidate candidate = *naive;
      candidate.variant = &wrong;
      BoundCase bound(fixture, candidate);
      const Verdict verdict = verifier.verify(bound);
      EXPECT_FALSE(verdict.correct);
      EXPECT_NE(verdict.reason, "");
    }
  }
}

}  // namespace
}  // namespace noisefloor
