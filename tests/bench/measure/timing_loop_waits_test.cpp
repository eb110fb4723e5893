// The measuring loop on a scripted machine: a host whose cores others use, edges between kernels beside the warm
// phases, and buffer slots.
#include <gtest/gtest.h>

#include "tests/support/scripted_timing.h"

namespace noisefloor {
namespace {

using Script = ScriptedTiming;

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
  EXPECT_GT(*row.load, 0);
  EXPECT_LE(*row.load, 2);
  EXPECT_GT(*row.waited_pct, 0);
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

Timing beside_edges(Script& script, bool serial = true, TimingOptions options = {}) {
  script.launch_us = [](int) { return 3.0; };
  options.look_at_edges = true;
  TimingLoop loop(script, options);
  loop.cold();
  loop.warm();
  if (serial) loop.warm_serial();
  return loop.timing();
}

// What a search left before a phase is gone in it; a look on either side sees a spell that begins within a phase.
TEST(Edges, AreMadeShortBeforeEachWarmPhaseAndLookedAtBehindIt) {
  Script script;
  double us = 1.2;
  script.settle = [&] { us = script.settle_calls == 1 ? 1.0 : 1.1; };
  script.edge_latency_us = [&](double) { return us; };
  const Timing timing = beside_edges(script);
  EXPECT_EQ(script.settle_calls, 2);
  EXPECT_EQ(script.edge_calls, 4);
  EXPECT_EQ(timing.warm_edge_us, std::vector<double>(8, 1.0));
  EXPECT_EQ(timing.warm_serial_edge_us, std::vector<double>(8, 1.1));
  EXPECT_EQ(row_of(timing).edge_latency_us, 1.1);
  EXPECT_EQ(timing.discarded_seconds, 0);

  Script spell;
  spell.edge_latency_us = [&](double) { return spell.warm_calls.size() >= 4 ? 1.2 : 1.0; };
  EXPECT_EQ(beside_edges(spell, false).warm_edge_us, (std::vector<double>{1, 1, 1, 1, 1.2, 1.2, 1.2, 1.2}));
}

TEST(Edges, AMachineWithoutThemHasABlankColumn) {
  Script host, nobody;
  const Timing timing = beside_edges(host, false, {.host = true});
  EXPECT_EQ(timing.warm_us.size(), 40u);
  EXPECT_TRUE(timing.warm_edge_us.empty());
  EXPECT_FALSE(row_of(timing).edge_latency_us);
  nobody.edge_latency_us = [](double) { return 1.2; };
  (void)measured(nobody);
  EXPECT_EQ(nobody.edge_calls, 0) << "a plan does not ask";
}

// Steady launches, which four batches would do for.
TEST(TimingLoop, AWarmPhaseHasABatchOfEachPlace) {
  Script script;
  script.launch_us = [](int) { return 5.0; };
  script.slots_ = 20;
  const Timing timing = measured(script);
  EXPECT_EQ(timing.warm_batches.size(), 20u);
  EXPECT_EQ(timing.cold_batches.size(), 20u);
  ASSERT_EQ(script.moves.size(), 40u);
  for (std::size_t i = 0; i < script.moves.size(); ++i) EXPECT_EQ(script.moves[i], i % 20);
}

TEST(TimingLoop, ColdBatchesOfManySlotsAreSmallAndComeInWholeRounds) {
  for (const std::size_t slots : {1u, 3u, 20u, 500u}) {
    SCOPED_TRACE(slots);
    Script script;
    script.launch_us = [](int launch) { return scattered(launch) / 100; };  // never known: to the most samples
    script.slots_ = slots;
    TimingLoop loop(script, {});
    loop.cold();
    const int batch = slots == 20 ? 16 : slots == 500 ? 2 : 50;
    EXPECT_EQ(script.cold_calls.back(), batch);
    const Timing& timing = loop.timing();
    EXPECT_GE(timing.cold_us.size(), 2000u);
    EXPECT_LT(timing.cold_us.size(), 2000u + static_cast<std::size_t>(batch) * slots);
    EXPECT_EQ(timing.cold_batches.size() % slots, 0u);
  }
}

TEST(TimingLoop, SlotsEndWithThePhasesTime) {
  Script script;
  script.launch_us = [](int) { return 9000.0; };  // a batch of one launch and more
  script.slots_ = 1000;
  const Timing timing = measured(script, {.warm = {0.005, 10, 200, 0.3}});
  EXPECT_LT(timing.warm_batches.size(), 40u);
  EXPECT_GE(timing.warm_batches.size(), 4u);
}

}  // namespace
}  // namespace noisefloor
