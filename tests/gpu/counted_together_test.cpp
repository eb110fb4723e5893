// Counters of a problem's cases that are taken together are those that each would have alone.
#include <gtest/gtest.h>

#include <map>

#include "bench/counters/range_profiler.h"
#include "bench/measure/case_runner.h"
#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

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

}  // namespace
}  // namespace noisefloor
