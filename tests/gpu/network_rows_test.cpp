// Whole networks as rows, on a device: verified against fp32, recorded as one CUDA graph, timed.
#include <gtest/gtest.h>

#include <string_view>

#include "bench/measure/case_runner.h"
#include "bench/sweep/suite.h"

namespace noisefloor {
namespace {

TEST(NetworkRowsOnADevice, AreVerifiedAndTimedUnderEveryPlan) {
  const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  RunnerOptions options;
  options.counters = CounterMode::off;
  CaseRunner runner(*platform, nullptr, options);
  const SuiteEntry& networks = *suite().find("network");
  for (const char* text : {"name=digits,batch=1", "name=edm-cifar,batch=2"}) {
    for (const DType dtype : {DType::bf16, DType::fp16, DType::fp32}) {
      // Its plans take half a minute to measure.
      if (dtype != DType::bf16 && std::string_view(text).starts_with("name=edm")) continue;
      for (const ImplementationPtr& plan : networks.implementations) {
        if (plan->in_worker) continue;
        SCOPED_TRACE(std::string(text) + " " + to_string(dtype) + " " + plan->name);
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
