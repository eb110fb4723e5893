// What counting prepares before anything is enabled: CUPTI's host library alone, without a device.
#include "bench/counters/counter_config.h"

#include <gtest/gtest.h>

#include <memory>

#include "bench/counters/counter_status.h"

namespace noisefloor {
namespace {

constexpr const char* kChip = "GH100";

// Null, and the reason, where CUPTI is not on this machine.
std::unique_ptr<CounterConfig> configure(std::span<const Metric> wanted, std::string& why,
                                         CountingCosts* costs = nullptr) {
  try {
    return std::make_unique<CounterConfig>(kChip, std::vector<std::uint8_t>(), wanted, costs);
  } catch (const CountersUnavailable& error) {
    if (error.status() != CounterStatus::no_cupti) throw;
    why = error.what();
    return nullptr;
  }
}

TEST(CounterConfig, HoldsItsMetricsByName) {
  std::string why;
  CountingCosts costs;
  const auto config = configure(row_metrics(), why, &costs);
  if (!config) GTEST_SKIP() << why;
  ASSERT_EQ(config->names().size(), row_metrics().size());
  const auto pointers = config->cupti_pointers();
  ASSERT_EQ(pointers.size(), row_metrics().size());
  for (std::size_t i = 0; i < pointers.size(); ++i) {
    EXPECT_EQ(config->names()[i], row_metrics()[i].name);
    EXPECT_STREQ(pointers[i], row_metrics()[i].cupti);
  }
  EXPECT_EQ(config->passes(), 1u);
  EXPECT_FALSE(config->image().empty());
  EXPECT_NE(costs.find("cuptiProfilerHostInitialize"), nullptr);
}

// It is kept to the end of the process; what it was made from need not be.
TEST(CounterConfig, OutlivesTheNamesItWasMadeFrom) {
  std::string why;
  std::unique_ptr<CounterConfig> config;
  {
    const std::string ours = "a name", cupti = "lts__t_bytes.sum";
    const Metric wanted[] = {{ours.c_str(), cupti.c_str(), "B", ""}};
    config = configure(wanted, why);
  }
  if (!config) GTEST_SKIP() << why;
  EXPECT_EQ(config->names().front(), "a name");
  EXPECT_STREQ(config->cupti_pointers().front(), "lts__t_bytes.sum");
}

TEST(CounterConfig, DiffersByItsMetrics) {
  std::string why;
  const auto row = configure(row_metrics(), why);
  if (!row) GTEST_SKIP() << why;
  const auto time = configure(std::span(&metric("gpu_time"), 1), why);
  EXPECT_NE(row->image(), time->image());
  EXPECT_EQ(configure(row_metrics(), why)->image(), row->image());
}

TEST(CounterConfig, ABadNameIsNamed) {
  std::string why;
  const Metric wanted[] = {metric("l2_bytes"), {"bad", "lts__no_such_thing.sum", "1", ""}};
  try {
    const auto config = configure(wanted, why);
    if (!config) GTEST_SKIP() << why;
    FAIL() << "a metric that does not exist was accepted";
  } catch (const CountersUnavailable& error) {
    EXPECT_EQ(error.status(), CounterStatus::unsupported_chip);
    const std::string text = error.what();
    for (const char* words : {"lts__no_such_thing.sum", kChip, "bad"})
      EXPECT_NE(text.find(words), std::string::npos) << text;
  }
}

// Bytes that are not counter data have no values, and no made-up ones.
TEST(CounterConfig, EmptyCounterDataIsRefused) {
  std::string why;
  const auto config = configure(row_metrics(), why);
  if (!config) GTEST_SKIP() << why;
  EXPECT_THROW(config->evaluate(std::vector<std::uint8_t>(4096)), CountersUnavailable);
}

}  // namespace
}  // namespace noisefloor
