// What a case's row says beside its times; and what plans ask of a case: verified and timed warm, with no more launches
// than it takes to choose. By scripted times.
#include "bench/measure/case_runner.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "bench/counters/kernel_resources.h"
#include "bench/measure/case_result.h"
#include "bench/measure/timing.h"
#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "tests/support/scripted_library.h"

namespace noisefloor {
namespace {

using Calls = std::vector<std::pair<int, int>>;

TEST(Counters, OfWhatFitsIntoL2LeaveOutDram) {
  const std::map<std::string, double> counted = {
      {"dram_read_bytes", 4e6}, {"dram_write_bytes", 1e6}, {"l2_bytes", 9e6}, {"occupancy_pct", 50}};
  for (const double bytes : {59e6, 60e6}) {
    SweepRow row;
    row.bytes = bytes;
    row.counter_status = "ok";
    take_counters(counted, 60'000'000, row);
    const bool beyond = bytes == 60e6;
    EXPECT_EQ(row.dram_read_bytes.has_value(), beyond);
    EXPECT_EQ(row.dram_write_bytes.has_value(), beyond);
    EXPECT_EQ(row.counter_status, beyond ? "ok" : "ok_below_l2");
    EXPECT_EQ(row.l2_bytes, 9e6);
    EXPECT_EQ(row.occupancy_pct, 50);
  }
}

TEST(Kernels, AreCountedByNameInTheirOrder) {
  std::vector<KernelResources> kernels(4);
  const char* const names[] = {"void noisefloor::b(int)", "void noisefloor::a<2>(int)", "void noisefloor::b(int)", "c"};
  for (std::size_t i = 0; i < kernels.size(); ++i) kernels[i].name = names[i];
  CaseResult result;
  count_kernels(kernels, result.samples);
  result.row.flops = result.row.bytes = 1;
  Timing timing;
  timing.cold_us = timing.warm_us = {5};
  take_samples(timing, result);
  EXPECT_EQ(result.samples.cold_us, std::vector<double>{5}) << "beside them";
  EXPECT_EQ(result.samples.kernels, (std::vector<std::string>{"b", "a<2>", "c"}));
  EXPECT_EQ(result.samples.kernel_counts, (std::vector<std::size_t>{2, 1, 1}));
}

TEST(AboveTheRoof, SaysWhatLetsIt) {
  const std::size_t cache = 60'000'000;
  EXPECT_EQ(why_above_roof({1, 300e6, Pipe::fma}, 100e6, true, cache),
            "it reads more than it writes, and the roof is that of a copy");
  EXPECT_EQ(why_above_roof({1, 100e6, Pipe::tensor, Shortcut::one_key}, 50e6, true, cache),
            "shortcut one_key; what it writes fits into cache");
  EXPECT_EQ(why_above_roof({1, 300e6, Pipe::tensor, Shortcut::four_phases}, 100e6, false, cache),
            "shortcut four_phases");
  EXPECT_EQ(why_above_roof({1, 300e6, Pipe::tensor}, 100e6, false, cache), "the ceiling was measured lower");
}

TEST(Implausible, IsWhatReadsOrArithmeticDoNotAllow) {
  const Ceiling reads{"dram_read", 1000, "GB/s"}, pipe{"tensor_bf16", 2000, "GFLOP/s"};
  const Cost cost{4e6, 3e6, Pipe::tensor};  // arithmetic takes 2 us, and reads of 2 MB too
  for (const auto& [flops, written, us, named] : {std::tuple{4e6, 1e6, 1.91, ""},
                                                  {4e6, 2e6, 1.89, "tensor_bf16"},
                                                  {1e6, 1e6, 1.89, "dram_read"},
                                                  {1e6, 2.5e6, 1.0, ""}}) {
    const std::string why = why_implausible({flops, cost.bytes, Pipe::tensor}, written, us, reads, pipe);
    EXPECT_EQ(why.empty(), *named == '\0') << why;
    EXPECT_NE(why.find(named), std::string::npos) << why;
  }
}

// By today's costs: where one trips, its ceiling or its op's cost is wrong.
TEST(Implausible, IsNoPublishedRow) {
  int judged = 0;
  for (const auto& folder : std::filesystem::directory_iterator("reports/recorded")) {
    if (!folder.is_directory()) continue;
    const Ceilings ceilings{read_ceilings(folder.path() / "ceilings.csv")};
    std::map<ProblemId, std::pair<Cost, double>> known;
    for (SweepRow& row : read_sweep_csv(folder.path() / "sweep.csv")) {
      if (row.status != Outcome::ok || !row.lossy.empty()) continue;
      const SuiteEntry* const entry = suite().find(row.op);
      ASSERT_NE(entry, nullptr) << row.op;
      const DType dtype = parse_dtype(row.dtype).value();
      const auto [place, is_new] = known.try_emplace(row.problem_id());
      auto& [cost, written] = place->second;
      if (is_new) {
        const AnyProblem problem = entry->workload->parse(row.problem);
        cost = entry->workload->cost(problem, dtype);
        written = written_bytes(*entry->workload, problem, dtype);
      }
      EXPECT_EQ(why_implausible(cost, written, *row.time_cold_us, ceilings.reads(), ceilings.compute(cost.pipe, dtype)),
                "")
          << row.name();
      ++judged;
    }
  }
  EXPECT_GT(judged, 10000);
}

TEST(NotBuilt, SaysWhyInTheRow) {
  const Op& op = *find_op("gemm");
  const SuiteEntry entry{&op, {}, nullptr};
  PlatformDescription host;
  host.is_host = true;
  for (const bool written : {true, false}) {
    AnyVariant variant = op.variants.front();
    variant.built = false;
    if (!written) variant.not_written = "waits for the naive variant";
    const Case test_case{&entry, implementation_of(variant), op.parse("m=1,n=1,k=1"), DType::bf16, "m=1,n=1,k=1"};
    const auto row = refused(test_case, host, "x86-64");
    ASSERT_TRUE(row);
    EXPECT_EQ(row->status, Outcome::not_built);
    EXPECT_TRUE(
        row->reason.starts_with(written ? "needs host; this build has " : "not written yet: waits for the naive"))
        << row->reason;
  }
}

// Of 4e12 operations, at a ceiling of 1e14 a second: 0.04 s by the roof.
TEST(LongLaunches, OfBriefCasesAreLeftOut) {
  Ceilings ceilings;
  for (const auto& [name, value] : {std::pair{"dram_copy", 1e3}, {"tensor_bf16", 1e5}}) {
    ceilings.rows.emplace_back().name = name;
    ceilings.rows.back().value = value;
  }
  const SuiteEntry& gemm = *suite().find("gemm");
  const auto left_out = [&](const char* variant, const char* text, bool brief) {
    Case one{&gemm, gemm.find(variant), gemm.workload->parse(text), DType::bf16, text};
    one.brief = brief;
    const auto row = too_long(one, ceilings, {}, "sm_90");
    EXPECT_TRUE(!row || (row->status == Outcome::unsupported_problem && !row->reason.empty())) << variant;
    return row.has_value();
  };
  const char *const large = "m=20000,n=10000,k=10000", *const larger = "m=20000,n=100000,k=20000",
                    *const small = "m=8,n=8,k=8";
  for (const char* variant : {"naive", "tiled", "tensor_core_sm80"})
    EXPECT_TRUE(left_out(variant, large, true)) << variant;
  EXPECT_FALSE(left_out("ptx_sm90a", large, true));
  EXPECT_TRUE(left_out("ptx_sm90a", larger, true));
  EXPECT_FALSE(left_out("naive", small, true));
  EXPECT_FALSE(left_out("naive", larger, false));
}

class WarmOnly : public testing::Test {
 protected:
  ScriptedPlatform platform;
  Ceilings ceilings = low_ceilings();
  RunnerOptions options;

  WarmOnly() { options.warm_only = true; }
  CaseResult run(const AnyVariant& variant, std::optional<double> to_beat_us = std::nullopt) {
    return CaseRunner(platform, &ceilings, options).run(gemm_case(implementation_of(variant)), to_beat_us);
  }
  // Of a variant whose launches put a wrong number into d from this one on.
  CaseResult run_wrong_from(int first) {
    return run(followed_by(platform.taking(5, host_gemm()), [=, launches = 0](auto pointers) mutable {
      if (launches++ >= first) store_element(DType::fp32, pointers.back(), 3, 1e3);
    }));
  }
};

TEST_F(WarmOnly, RowsHaveAWarmTimeAndNothingElse) {
  const CaseResult result = run(platform.taking(5, host_gemm()));
  const SweepRow& row = result.row;
  EXPECT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_EQ(row.time_warm_us, 5);
  EXPECT_EQ(result.samples.warm_us, std::vector<double>(10, 5.0));
  EXPECT_EQ(platform.warm_calls, (Calls{{1, 1}, {10, 1}}));
  EXPECT_TRUE(result.verdict.correct());

  EXPECT_TRUE(platform.cold_calls.empty());
  EXPECT_TRUE(result.samples.cold_us.empty());
  for (const auto& unasked : {row.time_cold_us, row.time_cold_mad_us, row.gflops, row.gbps, row.attainable_gflops,
                              row.pct_of_roof, row.dram_read_bytes, row.dram_write_bytes, row.occupancy_pct})
    EXPECT_FALSE(unasked.has_value());
  EXPECT_EQ(row.bound, Bound()) << "it is not placed under the roof";
}

TEST_F(WarmOnly, AWholeRunThatNoLaunchCanTakeHasNoTime) {
  options.warm_only = false;
  SweepRow row = run(platform.taking(1e-7, host_gemm())).row;
  EXPECT_EQ(row.status, Outcome::implausible);
  EXPECT_TRUE(is_failure(row));
  EXPECT_FALSE(row.time_cold_us || row.time_warm_us || row.pct_of_roof);
  EXPECT_NE(row.reason.find("dram_read"), std::string::npos) << row.reason;

  int raised = 0;  // of a host, other programs may have lowered the ceilings
  options.raise_ceilings = [&] {
    ++raised;
    for (Ceiling& ceiling : ceilings.rows) ceiling.value = 1e12;
  };
  row = run(platform.taking(1e-7, host_gemm())).row;
  EXPECT_EQ(row.status, Outcome::ok) << row.reason;
  EXPECT_LT(row.pct_of_roof.value(), 100);
  EXPECT_EQ(row.above_roof + row.reason, "");
  EXPECT_EQ(raised, 1);
}

TEST_F(WarmOnly, WhatTakesMoreThanTwiceTheTimeToBeatIsTimedOnce) {
  const AnyVariant variant = platform.taking(5, host_gemm());
  const CaseResult slow = run(variant, 2.4);
  EXPECT_EQ(slow.row.status, Outcome::ok);
  EXPECT_EQ(slow.row.time_warm_us, 5);
  EXPECT_EQ(platform.warm_calls, (Calls{{1, 1}}));

  platform.warm_calls.clear();
  EXPECT_EQ(run(variant, 2.5).row.time_warm_us, 5);
  EXPECT_EQ(platform.warm_calls, (Calls{{1, 1}, {10, 1}}));
}

TEST_F(WarmOnly, WrongOutputsLeaveNoTime) {
  for (const int first : {0, 5}) {  // the launch that is verified, one that is timed
    const CaseResult result = run_wrong_from(first);
    EXPECT_EQ(result.row.status, Outcome::incorrect);
    EXPECT_TRUE(result.row.reason.starts_with(first == 0 ? "d[3] is" : "after the warm launches: d[3] is"))
        << result.row.reason;
    EXPECT_FALSE(result.row.time_warm_us.has_value());
    EXPECT_EQ(platform.warm_calls.empty(), first == 0);
  }
}

TEST(KnownTimes, KeepWhatAnotherAttemptWouldFindToo) {
  struct {
    Outcome status;
    std::optional<double> warm_us;
    const char* why_not;
    bool kept;
  } const cases[] = {{Outcome::ok, 5, "", true},
                     {Outcome::ok, std::nullopt, "no warm time was taken", false},
                     {Outcome::incorrect, std::nullopt, "incorrect: why", true},
                     {Outcome::throttled, std::nullopt, "throttled: why", false}};
  for (const auto& one : cases) {
    SCOPED_TRACE(to_string(one.status));
    KnownTimes known;
    SweepRow row;
    row.status = one.status, row.time_warm_us = one.warm_us, row.reason = "why";
    const KnownTimes::Entry entry = known.add(row);
    EXPECT_EQ(entry.warm_us, one.warm_us);
    EXPECT_EQ(entry.why_not, one.why_not) << "it is said, kept or not";
    EXPECT_EQ(known.find(row) != nullptr, one.kept);
  }
}

}  // namespace
}  // namespace noisefloor
