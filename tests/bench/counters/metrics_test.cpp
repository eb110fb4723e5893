// Counters without a GPU: the metric table, its names on every chip, and what CUPTI's errors are turned into.
#include "bench/counters/metrics.h"

#include <gtest/gtest.h>

#include <set>

#include "bench/counters/counter_status.h"
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

TEST(Metrics, AreKnownOnEveryChip) {
  try {
    for (const char* chip : checked_chips()) {
      SCOPED_TRACE(chip);
      std::vector<Metric> wanted(metrics().begin(), metrics().end());
      EXPECT_EQ(check_metrics(chip, wanted).unknown, std::vector<std::string>());
      EXPECT_GE(check_metrics(chip, wanted).passes, 1u);
      EXPECT_EQ(check_metrics(chip, row_metrics()).passes, 1u) << "a second launch of each row costs hours of sweeps";
      wanted[1] = {"bad", "lts__no_such_thing.sum", "1", ""};
      EXPECT_EQ(check_metrics(chip, wanted).unknown, std::vector<std::string>{"lts__no_such_thing.sum"});
    }
    check_metrics("XX999", metrics());
    FAIL() << "an unknown chip was accepted";
  } catch (const CountersUnavailable& error) {
    if (error.status() == CounterStatus::no_cupti) GTEST_SKIP() << error.what() << "; metric names are not checked";
    EXPECT_EQ(error.status(), CounterStatus::unsupported_chip) << error.what();
  }
}

TEST(CounterStatus, ErrorsSayWhatToDo) {
  const struct {
    int result;
    CounterStatus status;
    const char* words;
  } cases[] = {{26, CounterStatus::busy, "another profiler"},
               {33, CounterStatus::unsupported_device, "virtualised"},
               {35, CounterStatus::no_permission, "NVreg_RestrictProfilingToAdminUsers=0"},
               {40, CounterStatus::no_permission, "administrator"},
               {43, CounterStatus::unsupported_device, "MIG"},
               {46, CounterStatus::unsupported_chip, "chip"},
               {999, CounterStatus::failed, "CUPTI failed"}};
  for (const auto& one : cases) {
    const CountersUnavailable error = counters_unavailable(one.result, "cuptiSomeCall");
    EXPECT_EQ(error.status(), one.status) << one.result;
    for (const std::string& words : {std::string(one.words), std::to_string(one.result), std::string("cuptiSomeCall")})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace noisefloor
