// Cases whose counters are taken together, behind the last of their problem: what the runner does where one is in the
// way of others, or fails. By a count of the test's own.
#include <gtest/gtest.h>

#include <list>
#include <map>

#include "bench/measure/case_runner.h"
#include "bench/sweep/suite.h"
#include "tests/support/limited_platform.h"
#include "tests/support/scripted_library.h"

namespace noisefloor {
namespace {

constexpr std::size_t kMemory = 1 << 26;  // far above the tensors with their guards

// Whose memory is all there is, so that half of it may be free.
class SmallPlatform final : public Limited<ScriptedPlatform> {
 public:
  SmallPlatform() : Limited(kMemory) { description_.memory_bytes = kMemory; }
  void synchronize() override {
    if (lost) throw DeviceError("it does not answer", true);
    Limited::synchronize();
  }
  bool lost = false;
};

class CountedLater : public testing::Test {
 protected:
  SmallPlatform platform;
  Ceilings ceilings;
  RunnerOptions options;
  std::list<AnyVariant> variants;
  std::map<std::string, SweepRow> counted;
  std::string counts;  // the variants, in their order
  std::unique_ptr<CaseRunner> runner;

  CountedLater() {
    for (const char* name : {"dram_copy", "fma_fp32"}) ceilings.rows.emplace_back().name = name;
    for (Ceiling& ceiling : ceilings.rows) ceiling.value = 100;
    options.on_counted = [this](const std::vector<SweepRow>& rows) {
      for (const SweepRow& row : rows) counted[row.variant] = row;
    };
    options.count_one = [this](const Case&, BoundCase&, SweepRow& row) {
      counts += row.variant;
      row.counter_status = "ok";
    };
  }
  Case make(const std::string& name, double us, std::size_t workspace = kMemory / 100,
            const char* text = "m=4,n=4,k=4") {
    AnyVariant& variant = variants.emplace_back(platform.taking(us, host_gemm()));
    variant.name = name;
    variant.workspace_bytes = [workspace](const AnyProblem&, DType, const DeviceInfo&) { return workspace; };
    const SuiteEntry& gemm = *suite().find("gemm");
    return {&gemm, implementation_of(variant), gemm.workload->parse(text), DType::fp32, text};
  }
  CaseResult run(const Case& test_case) {
    if (!runner) runner = std::make_unique<CaseRunner>(platform, &ceilings, options);
    const CaseResult result = runner->run(test_case);
    EXPECT_NE(result.row.status, Outcome::incorrect) << result.row.reason;
    return result;
  }
};

TEST_F(CountedLater, ThoseOfAProblemBehindItsLast) {
  const Case a = make("a", 5), b = make("b", 4), next = make("c", 3, kMemory / 100, "m=8,n=4,k=4");
  EXPECT_EQ(run(a).row.counter_status, "cut_off");
  EXPECT_TRUE(runner->settle_counters(&b));
  EXPECT_EQ(counts, "") << "one more is to come";
  run(b);
  EXPECT_TRUE(runner->settle_counters(&next));
  EXPECT_EQ(counts, "ab");
  EXPECT_EQ(counted["a"].time_cold_us, 5);
  EXPECT_EQ(counted["b"].counter_status, "ok");
  EXPECT_TRUE(counted["b"].spent_s.has_value());
  run(next);
  run(a);
  EXPECT_EQ(counts, "abc") << "also where nobody settled";
}

TEST_F(CountedLater, AtOnceWhereMemoryIsShort) {
  const CaseResult result = run(make("a", 5, 6 * kMemory / 10));
  EXPECT_EQ(result.row.status, Outcome::ok) << result.row.reason;
  EXPECT_EQ(result.row.counter_status, "host") << "the host has none, and nothing waits";
  EXPECT_TRUE(runner->settle_counters());
  EXPECT_TRUE(counted.empty());
}

TEST_F(CountedLater, WhatTheyHoldIsLetGoForOneThatNeedsIt) {
  run(make("a", 4, kMemory / 10));  // the fastest is kept for the duel
  run(make("b", 5, 35 * kMemory / 100));
  const CaseResult result = run(make("c", 6, 7 * kMemory / 10));
  EXPECT_EQ(result.row.status, Outcome::ok) << result.row.reason;
  EXPECT_EQ(counts, "ab");
  const CaseResult too_large = run(make("d", 6, 2 * kMemory));
  EXPECT_EQ(too_large.row.status, Outcome::out_of_memory);
  EXPECT_FALSE(too_large.unfinished);
}

TEST_F(CountedLater, ADeviceThatIsLostBeforeTheSecondTryIsNotTheCasesFault) {
  run(make("a", 4));
  platform.lost = true;
  const CaseResult result = run(make("b", 5, 2 * kMemory));
  EXPECT_TRUE(result.unfinished);
  EXPECT_TRUE(result.device_lost);
  EXPECT_EQ(counted["a"].status, Outcome::cuda_error);
}

TEST_F(CountedLater, ThoseBeforeOneThatFailsAreCounted) {
  run(make("a", 4));
  Case wrong = make("b", 5);
  variants.back().launch = [](const AnyProblem&, DType, std::span<void* const>, const Scratch&, const LaunchContext&) {
    throw DeviceError("no", false);
    return success();
  };
  const CaseResult result = run(wrong);
  EXPECT_EQ(result.row.status, Outcome::cuda_error);
  EXPECT_FALSE(result.device_lost);
  EXPECT_EQ(counts, "a");
  EXPECT_EQ(counted["a"].status, Outcome::ok);
}

TEST_F(CountedLater, OneThatFailsWhenItIsCountedHasNoTimes) {
  options.count_one = [](const Case&, BoundCase&, SweepRow& row) {
    if (row.variant == "a") throw DeviceError("no", false);
    row.counter_status = "ok";
  };
  run(make("a", 4)), run(make("b", 5));
  EXPECT_TRUE(runner->settle_counters());
  EXPECT_EQ(counted["a"].status, Outcome::cuda_error);
  EXPECT_FALSE(counted["a"].time_warm_us.has_value());
  EXPECT_EQ(counted["b"].counter_status, "ok");
}

}  // namespace
}  // namespace noisefloor
