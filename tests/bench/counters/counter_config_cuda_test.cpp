// What counting prepares before anything is enabled: CUPTI's host library alone, without a device.
#include "bench/counters/counter_config.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "bench/counters/counter_status.h"

namespace noisefloor {
namespace {

class Configured : public testing::Test {
 protected:
  // Null, and the test is skipped, where CUPTI is not on this machine.
  static std::unique_ptr<CounterConfig> of(std::span<const Metric> wanted, const char* chip = "GH100") {
    return std::make_unique<CounterConfig>(chip, std::vector<std::uint8_t>(), wanted);
  }
  void SetUp() override {
    try {
      row = of(kRowMetrics);
    } catch (const CountersUnavailable& error) {
      if (error.status() != CounterStatus::no_cupti) throw;
      GTEST_SKIP() << error.what();
    }
  }
  std::unique_ptr<CounterConfig> row;
};

TEST_F(Configured, HoldsItsMetrics) {
  ASSERT_EQ(row->metrics().size(), kRowMetrics.size());
  for (std::size_t i = 0; i < kRowMetrics.size(); ++i) EXPECT_STREQ(row->metrics()[i], kRowMetrics[i].cupti);
  EXPECT_EQ(row->passes(), 1u);
  EXPECT_FALSE(row->image().empty());
  constexpr std::array kOther{Metric{"gpu_time", "gpu__time_duration.sum"}};
  EXPECT_NE(row->image(), of(kOther)->image());
  EXPECT_EQ(row->image(), of(kRowMetrics)->image());
}

TEST_F(Configured, RowsTakeOneLaunchOnEveryChip) {
  for (const char* chip : {"TU102", "TU104", "GA100", "GA102", "AD102", "GH100", "GB100"})
    EXPECT_EQ(of(kRowMetrics, chip)->passes(), 1u) << chip << ": a second launch of each row costs hours of sweeps";
  try {
    of(kRowMetrics, "XX999");
    FAIL() << "an unknown chip was accepted";
  } catch (const CountersUnavailable& error) {
    EXPECT_EQ(error.status(), CounterStatus::unsupported_chip) << error.what();
  }
}

TEST_F(Configured, ABadNameIsNamed) {
  const Metric wanted[] = {kRowMetrics[2], {"bad", "lts__no_such_thing.sum"}};
  try {
    of(wanted);
    FAIL() << "a metric that does not exist was accepted";
  } catch (const CountersUnavailable& error) {
    EXPECT_EQ(error.status(), CounterStatus::unsupported_chip);
    for (const char* words : {"lts__no_such_thing.sum", "GH100", "bad"})
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

// Bytes that are not counter data have no values, and no made-up ones.
TEST_F(Configured, EmptyCounterDataIsRefused) {
  EXPECT_THROW(row->evaluate(std::vector<std::uint8_t>(4096)), CountersUnavailable);
}

}  // namespace
}  // namespace noisefloor
