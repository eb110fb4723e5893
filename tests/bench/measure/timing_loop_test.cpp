// The measuring loop on scripted machines: nothing is launched, time is a number, and clocks do what the script says.
#include "bench/measure/timing_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "bench/platform/nvml.h"
#include "bench/platform/platform.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Launches take what they take on the scripted machine, and its time goes on by that.
class Script final : public TimingSource {
 public:
  std::function<double(int)> launch_us = [](int) { return 1000.0; };  // of cold launch i
  // Of the time; null: such a machine has none.
  std::function<double(double)> mhz;
  std::function<std::uint64_t(double)> reasons;
  int lost_in_cold = -1, lost_in_warm = -1;  // the call, from 0, in which the device is lost

  double time = 0;
  std::vector<int> cold_calls;
  std::vector<std::pair<int, int>> warm_calls;  // samples, repeats
  int serial_calls = 0;
  double serial_us = 0;                   // that a launch with ordinary edges takes longer
  std::function<double(double)> wait_us;  // of a sample that ends at this time; null: nobody says
  std::function<double(double)> others;   // threads of others, at this time

  double now() override { return time; }

  std::vector<double> cold(int samples) override {
    if (static_cast<int>(cold_calls.size()) == lost_in_cold) throw DeviceError("the device fell off the bus", true);
    cold_calls.push_back(samples);
    return launch(samples, 1);
  }
  std::vector<double> warm(int samples, int repeats, Edges edges) override {
    if (static_cast<int>(warm_calls.size()) == lost_in_warm) throw DeviceError("the device fell off the bus", true);
    warm_calls.emplace_back(samples, repeats);
    std::vector<double> times = launch(samples, repeats);
    if (edges == Edges::ordinary)
      for (double& one : times) ++serial_calls, one += serial_us;
    return times;
  }
  std::optional<ClockReading> clock() override {
    if (!mhz) return std::nullopt;
    return ClockReading{mhz(time), {mhz(time) - 1}};
  }
  std::optional<std::uint64_t> clock_event_reasons() override {
    if (!reasons) return std::nullopt;
    return reasons(time);
  }
  std::span<const double> waits_us() override { return waits_; }
  std::optional<double> load() override {
    if (!others) return std::nullopt;
    return others(time);
  }

 private:
  std::vector<double> launch(int samples, int repeats) {
    constexpr double kHour = 3600;
    if (time > kHour) throw std::logic_error("the loop does not end");
    std::vector<double> times;
    waits_.clear();
    for (int i = 0; i < samples; ++i) {
      times.push_back(launch_us(launches_++));
      time += times.back() * repeats * 1e-6;
      if (wait_us) waits_.push_back(wait_us(time));
    }
    return times;
  }
  int launches_ = 0;
  std::vector<double> waits_;
};

// So far apart that their median is never known.
double scattered(int launch) {
  return launch % 2 == 0 ? 1000 : 3000;
}

Timing measured(Script& script, const TimingOptions& options = {}) {
  TimingLoop loop(script, options);
  loop.cold();
  loop.warm();
  return loop.timing();
}

SweepRow row_of(const Timing& timing) {
  SweepRow row;
  row.flops = 1e9;
  row.bytes = 1e6;
  write_times(timing, row);
  return row;
}

TEST(StoppingRule, StopsForEachReason) {
  StoppingRule rule{0.005, 10, 50, 1.0};
  const std::vector<double> steady(10, 7.0);
  EXPECT_STREQ(rule.verdict(steady, 0).value(), "converged");
  EXPECT_FALSE(rule.verdict(std::span(steady).first(9), 0).has_value());
  std::vector<double> noisy;
  for (int i = 0; i < 50; ++i) noisy.push_back(i % 2 == 0 ? 1 : 2);
  EXPECT_STREQ(rule.verdict(noisy, 0).value(), "max_samples");
  EXPECT_FALSE(rule.verdict(std::span(noisy).first(20), 0.5).has_value());
  EXPECT_STREQ(rule.verdict(std::span(noisy).first(20), 1.5).value(), "time_cap");
  EXPECT_FALSE(rule.verdict(std::span(noisy).first(4), 100).has_value()) << "a median of four says nothing of spread";
}

// A batch lasts about 20 ms by the first launch, with the flush before each one on a device.
TEST(TimingLoop, BatchesComeFromTheProbe) {
  struct {
    bool host;
    double us;
    int cold, warm, repeats;
  } const cases[] = {{true, 1000, 20, 10, 1},  {true, 5, 20, 10, 1},      {true, 3000, 6, 6, 1},
                     {true, 1e5, 1, 1, 1},     {false, 1000, 19, 10, 1},  {false, 5, 50, 10, 20},
                     {false, 0.5, 50, 10, 20}, {false, 0.01, 50, 10, 20}, {false, 60, 50, 10, 4},
                     {false, 3000, 6, 6, 1},   {false, 1e5, 2, 1, 1}};
  for (const auto& one : cases) {
    SCOPED_TRACE(testing::Message() << (one.host ? "host " : "device ") << one.us << " us");
    Script script;
    script.launch_us = [&](int) { return one.us; };
    measured(script, {.host = one.host});
    ASSERT_GE(script.cold_calls.size(), 2u);
    EXPECT_EQ(script.cold_calls[0], 1) << "the probe";
    EXPECT_EQ(script.cold_calls[1], one.cold);
    EXPECT_EQ(script.warm_calls.at(0), std::pair(one.warm, one.repeats));
  }
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
  EXPECT_FALSE(median_clock(timing.cold_mhz));
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

TEST(TimingLoop, StopsAtTheWallClockCap) {
  Script script;
  script.launch_us = scattered;
  const Timing timing = measured(script);
  EXPECT_EQ(timing.stop, "time_cap");
  double seconds = 0;
  for (const double us : timing.cold_us) seconds += us * 1e-6;
  EXPECT_GE(seconds, 1);
  EXPECT_LT(seconds, 1.1);
}

TEST(TimingLoop, TheCapComesBeforeTheFourthBatch) {
  Script script;
  script.launch_us = [](int) { return 5e5; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.stop, "time_cap");
  EXPECT_EQ(timing.cold_batches, std::vector<std::size_t>(3, 2)) << "a median of fewer than five says nothing";
}

TEST(TimingLoop, StopsAtTheMostSamples) {
  Script script;
  script.launch_us = [](int launch) { return scattered(launch) / 100; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.stop, "max_samples");
  EXPECT_EQ(timing.cold_us.size(), 2000u);
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
  double seconds = 0;
  for (const double us : timing.cold_us) seconds += us * 1e-6;
  EXPECT_GE(seconds, 1);
  EXPECT_LT(seconds, 1.1);
  EXPECT_EQ(row_of(timing).status, Outcome::ok);
  EXPECT_EQ(row_of(timing).throttle, "none");
}

TEST(TimingLoop, ThrottlingThatDoesNotEndLeavesNoTime) {
  for (const std::uint64_t reason : {kClockHwThermal, kClockSwThermal, kClockHwSlowdown, kClockHwPowerBrake}) {
    Script script;
    script.mhz = [](double) { return 1200.0; };
    script.reasons = [=](double) { return reason; };
    const Timing timing = measured(script);
    EXPECT_TRUE(timing.throttled());
    EXPECT_GE(timing.discarded_seconds, 5);
    EXPECT_LT(timing.discarded_seconds, 5.1);
    EXPECT_LT(script.time, 6) << "it is given up, not waited for";
    const SweepRow row = row_of(timing);
    EXPECT_EQ(row.status, Outcome::throttled);
    EXPECT_EQ(row.throttle, clock_events_text(reason));
    EXPECT_EQ(row.reason, clock_events_text(reason) + ", also after 5 s of repeating");
    for (const auto& time : {row.time_cold_us, row.time_cold_mad_us, row.time_warm_us, row.gflops, row.gbps})
      EXPECT_FALSE(time.has_value());
  }
}

// For 2 s another program has every other sample's core.
TEST(TimingLoop, SamplesThatWaitedForACoreAreTakenAgain) {
  Script script;
  int sample = 0;
  const auto disturbed = [&](double time) { return time < 2 && ++sample % 2 == 0; };
  bool last = false;
  script.launch_us = [&](int) { return (last = disturbed(script.time)) ? 8000.0 : 1000.0; };
  script.wait_us = [&](double) { return last ? 7000.0 : 9.0; };
  script.others = [](double time) { return time < 2 ? 2.0 : 0.0; };
  const Timing timing = measured(script, {.host = true});
  EXPECT_FALSE(timing.throttled());
  EXPECT_EQ(timing.cold_us, std::vector<double>(timing.cold_us.size(), 1000.0));
  EXPECT_GE(timing.cold_us.size(), 20u);
  EXPECT_EQ(timing.warm_us, std::vector<double>(timing.warm_us.size(), 1000.0));
  EXPECT_GT(timing.others.waited, 0u);
  EXPECT_LT(timing.others.waited, timing.others.judged);
  std::size_t kept = 0;
  for (const std::size_t batch : timing.cold_batches) kept += batch;
  EXPECT_EQ(kept, timing.cold_us.size()) << "a batch is what was kept of it";
  const SweepRow row = row_of(timing);
  EXPECT_EQ(row.status, Outcome::ok);
  EXPECT_EQ(row.time_cold_us, 1000);
  EXPECT_GT(row.load, 0);
  EXPECT_LE(row.load, 2);
  EXPECT_GT(row.waited_pct, 0);
}

TEST(TimingLoop, WaitingUpToAHundredthIsNone) {
  Script script;
  script.wait_us = [](double) { return 10.0; };
  EXPECT_EQ(measured(script, {.host = true}).others.waited, 0u);
  script.wait_us = [](double) { return 10.1; };
  EXPECT_TRUE(measured(script, {.host = true}).throttled());
}

TEST(TimingLoop, CoresThatOthersKeepLeaveNoTime) {
  Script script;
  script.launch_us = [](int) { return 8000.0; };
  script.wait_us = [](double) { return 7850.0; };
  script.others = [](double) { return 2.5; };
  const Timing timing = measured(script, {.host = true});
  EXPECT_TRUE(timing.throttled());
  EXPECT_TRUE(timing.cold_us.empty());
  EXPECT_TRUE(script.warm_calls.empty()) << "it is known already";
  EXPECT_GE(timing.discarded_seconds, 5);
  EXPECT_LT(script.time, 5.2) << "it is given up, not waited for";
  const SweepRow row = row_of(timing);
  EXPECT_EQ(row.status, Outcome::throttled);
  EXPECT_EQ(row.throttle, "run_queue");
  EXPECT_EQ(row.reason,
            "threads waited for a core in 100 % of the samples, also after 5 s of repeating: other programs had 2.5 "
            "threads to run");
  EXPECT_EQ(row.load, 2.5);
  EXPECT_EQ(row.waited_pct, 100);
  for (const auto& time : {row.time_cold_us, row.time_cold_mad_us, row.time_warm_us, row.gflops, row.gbps})
    EXPECT_FALSE(time.has_value());
}

TEST(TimingLoop, CoresThatOthersTakeInTheWarmPhaseLeaveNoTime) {
  Script script;
  script.wait_us = [&](double) { return script.warm_calls.empty() ? 0.0 : 500.0; };
  const Timing timing = measured(script, {.host = true});
  EXPECT_EQ(timing.stop, "converged");
  EXPECT_EQ(row_of(timing).status, Outcome::throttled);
  EXPECT_FALSE(row_of(timing).time_cold_us.has_value());
  EXPECT_LT(script.time, 5.2);
}

// Five undisturbed samples are a median; fewer are none.
TEST(TimingLoop, FewUndisturbedSamplesAreEnough) {
  for (const int good : {4, 5}) {
    Script script;
    int left = good;
    bool last = false;
    script.launch_us = [&](int launch) {
      last = launch > 0 && script.warm_calls.empty() && (launch % 100 != 0 || left-- <= 0);
      return last ? 3000.0 : 1000.0;
    };
    script.wait_us = [&](double) { return last ? 2000.0 : 0.0; };
    const Timing timing = measured(script, {.host = true});
    EXPECT_EQ(timing.cold_us, std::vector<double>(static_cast<std::size_t>(good), 1000.0));
    EXPECT_EQ(timing.stop, "time_cap");
    EXPECT_EQ(timing.throttled(), good < 5);
  }
}

TEST(TimingLoop, AProbeThatWaitedIsTakenAgain) {
  Script script;
  script.launch_us = [](int launch) { return launch < 2 ? 9000.0 : 1000.0; };
  script.wait_us = [&](double) { return script.cold_calls.size() <= 2 ? 8000.0 : 0.0; };
  measured(script, {.host = true});
  EXPECT_EQ(std::vector(script.cold_calls.begin(), script.cold_calls.begin() + 4), (std::vector{1, 1, 1, 20}));
}

TEST(TimingLoop, ThrottlingInTheWarmPhaseLeavesNoTime) {
  Script script;
  script.mhz = [](double) { return 1980.0; };
  script.reasons = [&](double) { return script.warm_calls.empty() ? ClockEvent{} : kClockSwThermal; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.throttle, kClockSwThermal);
  EXPECT_EQ(timing.discarded_seconds, 0);
  EXPECT_EQ(row_of(timing).status, Outcome::throttled);
  EXPECT_FALSE(row_of(timing).time_warm_us.has_value());
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
  Script script;
  script.mhz = [](double time) { return time < 0.05 ? 1980 : time < 0.09 ? 1900 : 1755; };
  script.launch_us = [&](int) { return script.time < 0.09 ? 900 : 1000; };
  const Timing timing = measured(script);
  ASSERT_FALSE(timing.cold_us.empty());
  EXPECT_EQ(timing.cold_us, std::vector<double>(timing.cold_us.size(), 1000.0));
  EXPECT_EQ(timing.cold_mhz, std::vector<double>(timing.cold_batches.size(), 1755.0));
  EXPECT_EQ(timing.launch_mhz, std::vector<double>(timing.cold_batches.size(), 1754.0));
  EXPECT_EQ(median_clock(timing.cold_mhz), 1755);
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

TEST(TimingLoop, ASmallStepIsNone) {
  Script script;
  script.mhz = [](double time) { return time < 0.03 ? 1980 : 1965; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.cold_mhz, (std::vector<double>{1980, 1965, 1965, 1965}));
}

TEST(TimingLoop, AClockThatNeverSettlesIsTakenAsItIs) {
  Script script;
  script.mhz = [&](double) { return script.cold_calls.size() % 2 == 0 ? 1980 : 1700; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.stop, "converged");
  EXPECT_EQ(timing.cold_batches.size(), 4u);
  EXPECT_EQ(median_clock(timing.cold_mhz), 1840);
  EXPECT_GE(script.time, 0.5);
  EXPECT_LT(script.time, 0.8);
}

// What was kept of the throttle reasons stays, whatever the clock does.
TEST(TimingLoop, AStepKeepsTheReasonsSeen) {
  Script script;
  script.mhz = [](double time) { return time < 0.05 ? 1980 : 1755; };
  script.reasons = [](double time) { return time < 0.05 ? kClockSwPowerCap : ClockEvent{}; };
  EXPECT_EQ(measured(script).throttle, kClockSwPowerCap);
}

TEST(TimingLoop, UnreadableClocksAreLeftOut) {
  Script script;
  script.mhz = [](double) { return kNaN; };
  const Timing none = measured(script);
  ASSERT_EQ(none.cold_mhz.size(), 4u) << "one a batch, read or not";
  EXPECT_TRUE(std::isnan(none.cold_mhz.front()));
  EXPECT_FALSE(median_clock(none.cold_mhz));
  EXPECT_FALSE(row_of(none).sm_clock_mhz);

  Script some;
  some.mhz = [&](double) { return some.cold_calls.size() % 2 == 0 ? 1980 : kNaN; };
  EXPECT_EQ(median_clock(measured(some).cold_mhz), 1980);

  Script zero;
  zero.mhz = [](double) { return 0.0; };
  EXPECT_FALSE(median_clock(measured(zero).cold_mhz));
}

TEST(TimingLoop, AStepBehindAnUnreadableClockIsSeen) {
  Script script;
  script.mhz = [](double time) { return time < 0.03 ? 1980 : time < 0.05 ? kNaN : 1755; };
  const Timing timing = measured(script);
  EXPECT_EQ(timing.cold_mhz, std::vector<double>(4, 1755.0));
}

TEST(TimingLoop, ALostDeviceLeavesNothingHalfTaken) {
  Script script;
  script.lost_in_cold = 3;
  TimingLoop loop(script, {});
  try {
    loop.cold();
    FAIL() << "the error is lost";
  } catch (const DeviceError& error) {
    EXPECT_TRUE(error.lost());
  }
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
    double now() override { return 0; }
    std::vector<double> cold(int) override { return {}; }
    std::vector<double> warm(int, int, Edges) override { return {}; }
    std::optional<ClockReading> clock() override { return std::nullopt; }
    std::optional<std::uint64_t> clock_event_reasons() override { return std::nullopt; }
  } silent;
  TimingLoop loop(silent, {});
  EXPECT_THROW(loop.cold(), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor
