// Counters without a GPU: the metric table, its names on every chip, and what CUPTI's errors are turned into.
#include "bench/counters/metrics.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <stdexcept>

#include "bench/counters/counter_status.h"
#include "bench/counters/counting_costs.h"
#include "bench/counters/kernel_resources.h"
#include "bench/counters/once.h"
#include "bench/platform/nvml.h"
#include "kernels/core/fields.h"
#include "reports/run/columns.h"

namespace noisefloor {
namespace {

TEST(Metrics, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const Metric& candidate : metrics()) {
    EXPECT_TRUE(names.insert(candidate.name).second) << candidate.name;
    EXPECT_EQ(&metric(candidate.name), &candidate);
  }
}

TEST(Metrics, RowMetricsAreTheColumnsOfASweep) {
  std::set<std::string> filled;
  SweepRow row;
  for (const Metric& candidate : row_metrics())
    for (const SweepColumn& column : sweep_columns()) {
      if (column.name != std::string(candidate.name)) continue;
      column.fill(row, 7);
      EXPECT_EQ(column.number(row), 7) << column.name;
      EXPECT_TRUE(column.counter) << column.name;
      filled.insert(column.name);
    }
  EXPECT_EQ(filled.size(), row_metrics().size()) << "a metric of rows is not a column";
  for (const char* name : {"dram_read_bytes", "dram_write_bytes", "l2_bytes", "occupancy_pct", "tensor_pipe_pct"})
    EXPECT_TRUE(filled.contains(name)) << name;
}

TEST(Metrics, UnknownNameIsRefusedWithTheNearest) {
  try {
    metric("dram_read_byte");
    FAIL() << "an unknown metric was accepted";
  } catch (const InvalidInput& error) {
    EXPECT_NE(std::string(error.what()).find("dram_read_bytes"), std::string::npos) << error.what();
  }
}

// Why CUPTI cannot be asked here (not in this build, or not on this machine); empty where it can.
const std::string& no_cupti() {
  static const std::string why = [] {
    try {
      check_metrics(checked_chips().front(), {});
      return std::string();
    } catch (const CountersUnavailable& error) {
      return error.status() == CounterStatus::no_cupti ? std::string(error.what()) : std::string();
    }
  }();
  return why;
}

class MetricsOnChip : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!no_cupti().empty()) GTEST_SKIP() << no_cupti() << "; metric names are not checked";
  }
};

TEST_P(MetricsOnChip, EveryNameIsKnown) {
  const MetricCheck check = check_metrics(GetParam(), metrics());
  for (const std::string& name : check.unknown) ADD_FAILURE() << GetParam() << " has no metric " << name;
  EXPECT_GE(check.passes, 1u);
}

// A row's counters cost one launch behind one flush: a metric that needs a second one says so here before it costs
// hours of sweeps.
TEST_P(MetricsOnChip, RowMetricsTakeOnePass) {
  const MetricCheck check = check_metrics(GetParam(), row_metrics());
  EXPECT_TRUE(check.unknown.empty());
  EXPECT_EQ(check.passes, 1u);
}

TEST_P(MetricsOnChip, ABadNameIsNamed) {
  const std::vector<Metric> wanted = {
      metric("l2_bytes"), {"bad", "lts__no_such_thing.sum", "1", ""}, metric("occupancy_pct")};
  const MetricCheck check = check_metrics(GetParam(), wanted);
  EXPECT_EQ(check.unknown, std::vector<std::string>{"lts__no_such_thing.sum"});
  EXPECT_GE(check.passes, 1u);
}

INSTANTIATE_TEST_SUITE_P(Chips, MetricsOnChip, testing::ValuesIn(checked_chips().begin(), checked_chips().end()),
                         [](const auto& chip) { return std::string(chip.param); });

TEST(Metrics, UnknownChipIsRefused) {
  try {
    check_metrics("XX999", metrics());
    FAIL() << "an unknown chip was accepted";
  } catch (const CountersUnavailable& error) {
    EXPECT_EQ(error.status(), no_cupti().empty() ? CounterStatus::unsupported_chip : CounterStatus::no_cupti)
        << error.what();
  }
}

TEST(MadeOnce, EachKeyIsMadeAtItsFirstRequest) {
  MadeOnce<std::string, int> lengths;
  int made = 0;
  const auto length = [&](const std::string& key) -> int& {
    return lengths.get(key, [&] {
      ++made;
      return std::make_unique<int>(static_cast<int>(key.size()));
    });
  };
  int& first = length("one");
  EXPECT_EQ(first, 3);
  EXPECT_EQ(length("three"), 5);
  EXPECT_EQ(&length("one"), &first);
  EXPECT_EQ(made, 2);
}

TEST(MadeOnce, WhatCouldNotBeMadeIsTriedAgain) {
  MadeOnce<int, int> values;
  EXPECT_THROW(values.get(1, []() -> std::unique_ptr<int> { throw std::domain_error("not yet"); }), std::domain_error);
  EXPECT_EQ(values.get(1, [] { return std::make_unique<int>(7); }), 7);
}

TEST(CountingCosts, AddUpByStep) {
  CountingCosts costs;
  const std::size_t last = costs.enter("last");  // known before it is taken
  { const TimedStep step(&costs, "first"); }
  { const TimedStep step(&costs, "first"); }
  EXPECT_EQ(costs.find("last")->times, 0);
  costs.add(last, 2.5);
  costs.add(costs.enter("other"), 0.5);
  ASSERT_EQ(costs.steps().size(), 3u);
  EXPECT_EQ(costs.steps()[1].step, "first");
  EXPECT_EQ(costs.steps()[1].times, 2);
  EXPECT_EQ(costs.find("last")->times, 1);
  EXPECT_DOUBLE_EQ(costs.total_ms(), 3 + costs.find("first")->ms);
  EXPECT_EQ(costs.find("none"), nullptr);
  const TimedStep nobody(nullptr, "nobody asks");
}

TEST(CounterStatus, ErrorsSayWhatToDo) {
  const auto expect = [](int result, CounterStatus status, const char* words) {
    const CountersUnavailable error = counters_unavailable(result, "cuptiSomeCall");
    EXPECT_EQ(error.status(), status) << result;
    const std::string text = error.what();
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_NE(text.find(std::to_string(result)), std::string::npos) << text;
    EXPECT_NE(text.find("cuptiSomeCall"), std::string::npos) << text;
  };
  expect(26, CounterStatus::busy, "another profiler");
  expect(33, CounterStatus::unsupported_device, "virtualised");
  expect(35, CounterStatus::no_permission, "NVreg_RestrictProfilingToAdminUsers=0");
  expect(40, CounterStatus::no_permission, "administrator");
  expect(41, CounterStatus::unsupported_device, "confidential");
  expect(42, CounterStatus::unsupported_device, "mining");
  expect(43, CounterStatus::unsupported_device, "MIG");
  expect(44, CounterStatus::unsupported_device, "SLI");
  expect(45, CounterStatus::unsupported_device, "Windows Subsystem");
  expect(46, CounterStatus::unsupported_chip, "chip");
  expect(999, CounterStatus::failed, "CUPTI failed");
}

TEST(KernelResources, DominantHoldsTheMostOfTheDevice) {
  EXPECT_EQ(dominant_kernel({}), nullptr);
  std::vector<KernelResources> kernels(3);
  kernels[0].resident_bytes = 10;
  kernels[1].resident_bytes = 30;
  kernels[2].resident_bytes = 20;
  EXPECT_EQ(dominant_kernel(kernels), &kernels[1]);
}

TEST(ClockEvents, AreNamed) {
  EXPECT_EQ(clock_events_text(0), "none");
  EXPECT_EQ(clock_events_text(kClockSwPowerCap | kClockHwThermal), "sw_power_cap|hw_thermal");
  EXPECT_EQ(clock_events_text(kClockGpuIdle | 0x8000), "gpu_idle|0x8000");
  EXPECT_EQ(kClockThrottle & (kClockGpuIdle | kClockApplicationsSetting), 0u);
}

TEST(GpuMonitor, WithoutAGpuSaysWhyAndReportsNothing) {
  const GpuMonitor monitor("ffff:ff:1f.0");
  EXPECT_FALSE(monitor.available());
  EXPECT_FALSE(monitor.reason().empty());
  const GpuState state = monitor.read();
  EXPECT_FALSE(state.sm_clock_mhz || state.power_w || state.clock_event_reasons || state.compute_processes);
  const GpuDescription gpu = monitor.describe();
  EXPECT_EQ(gpu.uuid, "");
  EXPECT_FALSE(gpu.power_limit_w || gpu.power_limit_default_w || gpu.sm_clock_max_mhz || gpu.ecc || gpu.mig);
}

}  // namespace
}  // namespace noisefloor
