// The measuring loop on scripted machines: nothing is launched, time is a number, and clocks do what the script says.
#include "bench/measure/timing_loop.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "bench/platform/nvml.h"
#include "reports/run/statistics.h"
#include "reports/run/sweep_csv.h"
#include "tests/support/scripted_timing.h"

namespace noisefloor {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

using Script = ScriptedTiming;

// A batch lasts about 20 ms by the first launch, with the flush before each one on a device.
TEST(TimingLoop, BatchesComeFromTheProbe) {
  struct {
    bool host;
    double us;
    int cold, warm, repeats;
  } const cases[] = {{true, 1000, 20, 10, 1},  {true, 5, 20, 10, 1},      {true, 3000, 6, 6, 1},
                     {true, 1e5, 1, 1, 1},     {false, 1000, 19, 10, 1},  {false, 5, 50, 10, 20},
                     {false, 0.5, 50, 10, 20}, {false, 0.01, 50, 10, 20}, {false, 60, 50, 10, 5},
                     {false, 3000, 6, 6, 1},   {false, 1e5, 2, 1, 1}};
  for (const auto& one : cases) {
    SCOPED_TRACE(testing::Message() << (one.host ? "host " : "device ") << one.us << " us");
    Script script;
    script.launch_us = [&](int) { return one.us; };
    measured(script, {.host = one.host});
    ASSERT_GE(script.cold_calls.size(), 2u);
    EXPECT_EQ(script.cold_calls[0], 1) << "the probe";
    EXPECT_EQ(script.cold_calls[1], one.cold);
    const std::size_t probes = one.host ? 0 : one.us >= 2000 ? 1 : 2;
    EXPECT_EQ(script.warm_calls.at(probes), std::pair(one.warm, one.repeats));
  }
}

// What a graph of one launch takes is its own start, most of all a process's first: it decides nothing.
TEST(TimingLoop, ASlowFirstLaunchDoesNotShortenWarmSamples) {
  Script script;
  script.launch_us = [&](int) { return script.warm_calls.size() <= 1 ? 250.0 : 4.0; };
  measured(script);
  EXPECT_EQ(script.warm_calls.at(0), std::pair(1, 1));
  EXPECT_EQ(script.warm_calls.at(1), std::pair(3, 5)) << "not one, whatever the first took";
  EXPECT_EQ(script.warm_calls.at(2), std::pair(10, 20));
}

TEST(TimingLoop, TakesFourBatchesOfAnEvenLaunch) {
  Script script;
  const Timing timing = measured(script, {.host = true});
  EXPECT_EQ(timing.cold_batches, std::vector<std::size_t>(4, 20)) << "the first already has the samples it takes";
  EXPECT_EQ(timing.stop, "converged");
  EXPECT_EQ(timing.cold_us, std::vector<double>(80, 1000.0)) << "the probe is not among them";
  EXPECT_EQ(timing.warm_us, std::vector<double>(40, 1000.0)) << "warm ones as well";
  EXPECT_EQ(timing.warm_batches, std::vector<std::size_t>(4, 10));
  EXPECT_TRUE(timing.cold_mhz.empty());
  EXPECT_FALSE(median_of_known(timing.cold_mhz));
  EXPECT_FALSE(timing.throttle);
  const SweepRow row = row_of(timing);
  EXPECT_EQ(row.status, Outcome::ok);
  EXPECT_EQ(row.time_cold_us, 1000);
  EXPECT_EQ(row.time_cold_mad_us, 0);
  EXPECT_EQ(row.time_warm_us, 1000);
  EXPECT_EQ(row.gflops, 1000);
  EXPECT_EQ(row.gbps, 1);
  EXPECT_EQ(row.samples, 80);
  EXPECT_EQ(row.throttle, "") << "nobody said";
}

// Each warm batch is a graph of its own, and a graph may have a level of its own.
TEST(TimingLoop, WarmBatchesAreTakenUntilTheyAgree) {
  Script script;
  script.launch_us = [&](int) { return script.warm_calls.size() % 2 == 0 ? 5.0 : 5.2; };
  const Timing timing = measured(script);
  ASSERT_GE(timing.warm_batches.size(), 8u);
  EXPECT_LE(error_of_batch_mean({timing.warm_us, timing.warm_batches}), 0.005);
  Script quick;
  quick.launch_us = [&](int) { return quick.warm_calls.size() % 2 == 0 ? 5.0 : 5.2; };
  EXPECT_LT(measured(quick, {.quick = true}).warm_batches.size(), 4u);
}

double seconds_of(const std::vector<double>& samples) {
  return 1e-6 * std::accumulate(samples.begin(), samples.end(), 0.0);
}

TEST(TimingLoop, StopsAtTheWallClockCapOrTheMostSamples) {
  Script script, few, many;
  script.launch_us = scattered;
  const Timing timing = measured(script);
  EXPECT_EQ(timing.stop, "time_cap");
  EXPECT_GE(seconds_of(timing.cold_us), 1);
  EXPECT_LT(seconds_of(timing.cold_us), 1.1);
  few.launch_us = [](int) { return 5e5; };
  const Timing capped = measured(few);
  EXPECT_EQ(capped.stop, "time_cap") << "before the fourth batch";
  EXPECT_EQ(capped.cold_batches, std::vector<std::size_t>(3, 2)) << "a median of fewer than five says nothing";
  many.launch_us = [](int launch) { return scattered(launch) / 100; };
  const Timing most = measured(many);
  EXPECT_EQ(most.stop, "max_samples");
  EXPECT_EQ(most.cold_us.size(), 2000u);
}

TEST(TimingLoop, ThrottledBatchesAreTakenAgain) {
  Script script;
  script.launch_us = scattered;  // only the cap ends it: the repeating must not count against that
  script.mhz = [](double time) { return time < 2 ? 1200 : 1980; };
  script.reasons = [](double time) { return time < 2 ? kClockHwThermal : kClockGpuIdle; };
  const Timing timing = measured(script);
  EXPECT_FALSE(timing.throttled());
  EXPECT_EQ(timing.throttle, 0u) << "the clock was held down in no batch that was kept";
  EXPECT_GE(timing.discarded_seconds, 1.9);
  EXPECT_LT(timing.discarded_seconds, 2.1);
  EXPECT_EQ(timing.cold_mhz, std::vector<double>(timing.cold_batches.size(), 1980));
  EXPECT_GE(seconds_of(timing.cold_us), 1);
  EXPECT_LT(seconds_of(timing.cold_us), 1.1);
  EXPECT_EQ(row_of(timing).status, Outcome::ok);
  EXPECT_EQ(row_of(timing).throttle, "none");
}

TEST(TimingLoop, ThrottlingThatDoesNotEndLeavesNoTime) {
  for (const std::uint64_t reason : {kClockHwThermal, kClockSwThermal, kClockHwSlowdown, kClockHwPowerBrake})
    for (const bool from_warm_on : {false, true}) {
      Script script;
      script.mhz = [](double) { return 1200.0; };
      script.reasons = [&](double) { return from_warm_on && script.warm_calls.empty() ? 0 : reason; };
      const Timing timing = measured(script);
      EXPECT_TRUE(timing.throttled());
      EXPECT_EQ(timing.throttle, reason);
      EXPECT_NEAR(timing.discarded_seconds, 5, 0.1);
      EXPECT_LT(script.time, 6) << "it is given up, not waited for";
      const SweepRow row = row_of(timing);
      EXPECT_EQ(row.status, Outcome::throttled);
      EXPECT_EQ(row.throttle, clock_events_text(reason));
      EXPECT_EQ(row.reason, clock_events_text(reason) + ", also after 5 s of repeating");
      for (const auto& time : {row.time_cold_us, row.time_cold_mad_us, row.time_warm_us, row.gflops, row.gbps})
        EXPECT_FALSE(time.has_value());
    }
}

TEST(TimingLoop, WarmBatchesUnderASlowdownAreTakenAgain) {
  Script script;
  script.mhz = [](double) { return 1980.0; };
  bool warm = false;
  double until = 0;
  script.reasons = [&](double time) {
    if (!warm && !script.warm_calls.empty()) warm = true, until = time + 0.2;
    return time < until ? kClockHwSlowdown : ClockEvent{};
  };
  script.launch_us = [&](int) { return script.time < until ? 2000.0 : 1000.0; };
  const Timing timing = measured(script);
  EXPECT_FALSE(timing.throttled());
  EXPECT_GT(timing.discarded_seconds, 0.1);
  EXPECT_EQ(row_of(timing).time_warm_us, 1000);
  EXPECT_EQ(row_of(timing).status, Outcome::ok);
}

// Dense products run into the power cap on every large GPU: the row names it and keeps its times.
TEST(TimingLoop, APowerCapIsNamedAndKept) {
  Script script;
  script.mhz = [](double) { return 1700.0; };
  script.reasons = [](double) { return kClockSwPowerCap | kClockApplicationsSetting; };
  const Timing timing = measured(script);
  EXPECT_FALSE(timing.throttled());
  EXPECT_EQ(timing.discarded_seconds, 0);
  const SweepRow row = row_of(timing);
  EXPECT_EQ(row.status, Outcome::ok);
  EXPECT_EQ(row.throttle, "sw_power_cap") << "settings that somebody asked for are not named";
  EXPECT_EQ(row.sm_clock_mhz, 1700);
}

TEST(TimingLoop, SamplesBeforeAClockStepAreDropped) {
  struct {
    std::function<double(double)> mhz;
    double steady_from;
    std::vector<double> kept;
  } const cases[] = {
      {[](double time) { return time < 0.05   ? 1980
                                : time < 0.09 ? 1900
                                              : 1755; }, 0.09, {1755, 1755, 1755, 1755}},
      // Behind an unreadable one; and a small step is none.
      {[](double time) { return time < 0.03   ? 1980
                                : time < 0.05 ? kNaN
                                              : 1755; }, 0.05, {1755, 1755, 1755, 1755}},
      {[](double time) { return time < 0.03 ? 1980 : 1965; }, 0, {1980, 1965, 1965, 1965}}};
  for (const auto& one : cases) {
    Script script;
    script.mhz = one.mhz;
    script.launch_us = [&](int) { return script.time < one.steady_from ? 900 : 1000; };
    // What was kept of the throttle reasons stays, whatever the clock does.
    script.reasons = [](double time) { return time < 0.025 ? kClockSwPowerCap : ClockEvent{}; };
    const Timing timing = measured(script);
    EXPECT_EQ(timing.cold_mhz, one.kept);
    EXPECT_EQ(timing.cold_us, std::vector<double>(timing.cold_us.size(), 1000.0));
    EXPECT_EQ(timing.throttle, kClockSwPowerCap);
  }
}

TEST(TimingLoop, WarmLaunchesHaveTheirClockAndTheirReason) {
  Script script;
  script.mhz = [&](double) { return script.warm_calls.empty() ? 1980.0 : 1700.0; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.warm_mhz, std::vector<double>(4, 1700.0)) << "one a batch";
  EXPECT_EQ(timing.warm_stop, "converged");
  const SweepRow row = row_of(timing);
  EXPECT_EQ(row.sm_clock_mhz, 1980);
  EXPECT_EQ(row.warm_clock_mhz, 1700);
  EXPECT_EQ(row.warm_samples, 40);
  EXPECT_EQ(row.warm_stop, "converged");
}

TEST(TimingLoop, OrdinaryEdgesAreTimedApartWhereAskedFor) {
  Script script;
  script.serial_us = 7;
  const Timing without = measured(script);
  EXPECT_EQ(script.serial_calls, 0);
  EXPECT_TRUE(without.warm_serial_us.empty());
  EXPECT_EQ(row_of(without).time_warm_serial_us, 1000) << "what has no other edges";

  TimingLoop loop(script, {});
  loop.cold();
  loop.warm();
  loop.warm_serial();
  EXPECT_EQ(loop.timing().warm_us, std::vector<double>(40, 1000.0));
  EXPECT_EQ(loop.timing().warm_serial_us, std::vector<double>(40, 1007.0));
  EXPECT_EQ(loop.timing().warm_serial_batches, std::vector<std::size_t>(4, 10));
  EXPECT_EQ(loop.timing().warm_serial_mhz.size(), loop.timing().warm_mhz.size());
  EXPECT_EQ(row_of(loop.timing()).time_warm_us, 1000);
  EXPECT_EQ(row_of(loop.timing()).time_warm_serial_us, 1007);
}

TEST(TimingLoop, AClockThatNeverSettlesIsTakenAsItIs) {
  Script script;
  script.mhz = [&](double) { return script.cold_calls.size() % 2 == 0 ? 1980 : 1700; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.stop, "converged");
  EXPECT_EQ(timing.cold_batches.size(), 4u);
  EXPECT_EQ(median_of_known(timing.cold_mhz), 1840);
  EXPECT_GE(script.time, 0.5);
  EXPECT_LT(script.time, 0.8);
}

TEST(TimingLoop, UnreadableClocksAreLeftOut) {
  for (const double unreadable : {kNaN, 0.0}) {
    Script script;
    script.mhz = [=](double) { return unreadable; };
    const Timing timing = measured(script);
    EXPECT_EQ(timing.cold_mhz.size(), 4u) << "one a batch, read or not";
    EXPECT_FALSE(median_of_known(timing.cold_mhz));
    EXPECT_FALSE(row_of(timing).sm_clock_mhz);
  }
}

TEST(TimingLoop, ALostDeviceLeavesNothingHalfTaken) {
  Script script;
  script.lost_in_cold = 3;
  TimingLoop loop(script, {});
  bool lost = false;
  try {
    loop.cold();
  } catch (const DeviceError& error) {
    lost = error.lost();
  }
  EXPECT_TRUE(lost);
  EXPECT_TRUE(loop.timing().cold_us.empty());
  EXPECT_TRUE(loop.timing().cold_batches.empty());

  Script later;
  later.launch_us = scattered;
  later.lost_in_warm = 1;
  TimingLoop second(later, {});
  second.cold();
  EXPECT_THROW(second.warm(), DeviceError);
  EXPECT_FALSE(second.timing().cold_us.empty());
  EXPECT_TRUE(second.timing().warm_us.empty());
}

TEST(TimingLoop, AnAnswerThatIsNoTimeIsRefused) {
  for (const double us : {kNaN, -1.0, 0.0, std::numeric_limits<double>::infinity()}) {
    Script script;
    script.launch_us = [=](int launch) { return launch < 30 ? 1000 : us; };
    TimingLoop loop(script, {});
    EXPECT_THROW(loop.cold(), std::runtime_error) << us;
  }
  struct Silent final : TimingSource {
    std::vector<double> cold(int) override { return {}; }
    std::vector<double> warm(int, int, Edges) override { return {}; }
  } silent;
  TimingLoop loop(silent, {});
  EXPECT_THROW(loop.cold(), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor
