// The case runner on a device: counters of a problem's cases that are taken together, and whole networks as rows.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "bench/counters/range_profiler.h"
#include "bench/measure/case_runner.h"
#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

// Counted together they are what each would have alone.
TEST(CountedTogether, AsOneByOne) {
  const CounterProbe probe = probe_counters();
  if (probe.status != CounterStatus::ok) GTEST_SKIP() << to_string(probe.status) << ": " << probe.message;
  const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  const SuiteEntry& groupnorm = *suite().find("groupnorm");
  const char* const text = "n=8,hw=4096,channels=192,groups=32,fusion=silu";
  std::vector<Case> cases;
  for (const ImplementationPtr& one : groupnorm.implementations)
    if (!one->in_worker && one->on_gpu && !one->is(Kind::baseline))
      cases.push_back({&groupnorm, one, groupnorm.workload->parse(text), DType::bf16, text});

  std::map<CaseId, SweepRow> alone, together;
  CaseRunner one_by_one(*platform, nullptr, {});
  for (const Case& one : cases) {
    const SweepRow row = one_by_one.run(one).row;
    if (row.status == Outcome::ok) alone[row] = row;
  }
  ASSERT_GE(alone.size(), 3u);

  RunnerOptions options;
  options.compare = false;
  for (const CaseResult& one : CaseRunner(*platform, nullptr, options).run_problem(cases, {}).cases)
    if (one.row.status == Outcome::ok) together[one.row] = one.row;
  ASSERT_EQ(together.size(), alone.size());
  for (const auto& [id, row] : together) {
    SCOPED_TRACE(id.name());
    const SweepRow& other = alone.at(id);
    EXPECT_EQ(row.counter_status, other.counter_status);
    EXPECT_GT(row.time_cold_us.value_or(0), 0);
    EXPECT_GT(row.spent_s.value_or(0), 0);
    // A launch's bytes in L2 differ a little from one to the next, its occupancy by how its blocks end.
    EXPECT_NEAR(row.l2_bytes.value() / other.l2_bytes.value(), 1, 0.05);
    EXPECT_NEAR(row.occupancy_pct.value(), other.occupancy_pct.value(), 5);
  }
}

// The fastest of ours, of a problem of a network whose second and third tensors are weights.
SweepRow with_weights(const char* op, const std::string& text) {
  const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  RunnerOptions options;
  options.counters = CounterMode::off;
  CaseRunner runner(*platform, nullptr, options);
  const SuiteEntry& entry = *suite().find(op);
  SweepRow fastest;
  for (const ImplementationPtr& one : entry.implementations) {
    if (!one->is(Kind::ptx) && !one->is(Kind::tensor_core)) continue;
    Case test_case{&entry, one, entry.workload->parse(text), DType::bf16, text};
    test_case.weights = 0b110;
    const SweepRow row = runner.run(test_case).row;
    EXPECT_NE(row.status, Outcome::incorrect) << one->name << ": " << row.reason;
    if (row.time_warm_us.value_or(1e9) < fastest.time_warm_us.value_or(1e9)) fastest = row;
  }
  return fastest;
}

TEST(WeightsCold, CostWhatReadingThemDoesAndNothingElse) {
  const SweepRow product = with_weights("gemm", "m=2,n=4096,k=4096");
  ASSERT_TRUE(product.time_weights_cold_us) << product.reason;
  EXPECT_GT(*product.time_weights_cold_us, 1.1 * *product.time_warm_us);
  EXPECT_LT(*product.time_weights_cold_us, 1.1 * *product.time_cold_us);
  EXPECT_GT(*product.time_weights_cold_us, 0.65 * *product.time_cold_us) << "a launch alone also costs its start";
  const SweepRow norm = with_weights("groupnorm", "n=16,hw=4096,channels=192,groups=32");
  ASSERT_TRUE(norm.time_weights_cold_us) << norm.reason;
  EXPECT_NEAR(*norm.time_weights_cold_us / *norm.time_warm_us, 1, 0.1);
}

// Verified against fp32, recorded as one CUDA graph, timed.
TEST(NetworkRowsOnADevice, AreVerifiedAndTimedUnderEveryPlan) {
  const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  RunnerOptions options;
  options.counters = CounterMode::off;
  CaseRunner runner(*platform, nullptr, options);
  const SuiteEntry& networks = *suite().find("network");
  for (const std::string text : {"name=digits,batch=1", "name=edm-cifar,batch=2", "name=adm64,batch=2"}) {
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      // Plans of the larger ones take half a minute to measure.
      if (dtype != DType::bf16 && !text.starts_with("name=digits")) continue;
      for (const ImplementationPtr& plan : networks.implementations) {
        if (plan->in_worker || (text.starts_with("name=adm") && plan->name != "plan_own")) continue;
        SCOPED_TRACE(text + " " + to_string(dtype) + " " + plan->name);
        const CaseResult result = runner.run({&networks, plan, networks.workload->parse(text), dtype, text});
        ASSERT_FALSE(result.device_lost) << result.row.reason;
        EXPECT_EQ(result.row.status, Outcome::ok) << result.row.reason;
        EXPECT_GT(result.row.time_cold_us.value_or(0), 0);
        EXPECT_GT(result.row.time_warm_us.value_or(0), 0);
        EXPECT_LE(result.verdict.l2_error, result.verdict.l2_tolerance);
        EXPECT_FALSE(result.row.registers.has_value());
        EXPECT_GT(result.samples.kernels.size(), 3u) << "each by its name";
      }
    }
  }
}

}  // namespace
}  // namespace noisefloor
