// The measuring loop while edges between kernels take longer for a time: such a spell comes, ends, or stays.
#include <gtest/gtest.h>

#include "reports/run/run_files.h"
#include "tests/support/scripted_timing.h"

namespace noisefloor {
namespace {

// Launches of 3 us, behind edges of 1 us and 1.2 us from `from` to `to`.
struct Spell {
  double from = 0, to = 0;
  ScriptedTiming script{};
  EdgeLevel level{};

  Spell(double from_s, double to_s) : from(from_s), to(to_s) {
    script.launch_us = [](int) { return 3.0; };
    script.edge_us = [this](double time) { return time >= from && time < to ? 1.2 : 1.0; };
  }
  Spell(const Spell&) = delete;

  Timing row(TimingOptions options = {}, bool serial = false) {
    options.edge_level = &level;
    TimingLoop loop(script, options);
    loop.cold();
    loop.warm();
    if (serial) loop.warm_serial();
    return loop.timing();
  }
};

TEST(Edges, AreLookedAtBeforeAndBehindEachWarmPhase) {
  Spell none(0, 0);
  const Timing timing = none.row({}, /*serial=*/true);
  EXPECT_EQ(none.script.edge_calls, 4);
  EXPECT_EQ(timing.warm_edge_us, std::vector<double>(8, 1.0));
  EXPECT_EQ(timing.warm_serial_edge_us, std::vector<double>(8, 1.0));
  EXPECT_EQ(timing.discarded_seconds, 0);
  EXPECT_EQ(row_of(timing).edge_us, 1.0);
  EXPECT_EQ(row_of(timing).reason, "");
}

TEST(Edges, ASpellThatEndsIsWaitedFor) {
  Spell spell(1, 3);
  EXPECT_EQ(spell.row().warm_us.front(), 3);
  spell.script.time = 1;
  const Timing timing = spell.row();
  EXPECT_EQ(timing.warm_us, std::vector<double>(40, 3.0)) << "nothing of the spell is kept";
  EXPECT_EQ(timing.warm_edge_us, std::vector<double>(8, 1.0));
  EXPECT_GT(timing.discarded_seconds, 1.5);
  EXPECT_LT(timing.discarded_seconds, 2.1);
  EXPECT_EQ(row_of(timing).reason, "");
}

// It begins in the midst of a phase: the look behind it sees it.
TEST(Edges, ASpellThatBeginsWithinAPhaseIsSeen) {
  Spell spell(0, 0);
  spell.script.edge_us = [&](double time) { return spell.script.warm_calls.size() >= 4 && time < 1 ? 1.2 : 1.0; };
  EXPECT_EQ(spell.row().warm_us, std::vector<double>(40, 3.0));
  EXPECT_GT(spell.script.edge_calls, 2);
}

TEST(Edges, ASpellThatStaysIsWaitedForWithinBoundsAndSaid) {
  Spell spell(1, 1e9);
  (void)spell.row();
  spell.script.time = 1;
  const Timing timing = spell.row();
  EXPECT_GE(timing.discarded_seconds, 5);
  EXPECT_LT(timing.discarded_seconds, 5.1);
  EXPECT_NEAR(timing.warm_us.front(), 3.2, 1e-9) << "taken as it is";
  const SweepRow row = row_of(timing);
  EXPECT_EQ(row.status, Outcome::ok);
  EXPECT_EQ(row.edge_us, 1.2);
  EXPECT_EQ(row.reason, "edges took 0.20 us longer than at best in this run");
  const double before = spell.script.time;
  for (int i = 0; i < 30; ++i) (void)spell.row();
  EXPECT_LT(spell.script.time - before, 60) << "a run of many rows does not wait for each";
  EXPECT_EQ(spell.row().discarded_seconds, 0);
  EXPECT_EQ(row_of(spell.row()).reason, "edges took 0.20 us longer than at best in this run");
}

TEST(Edges, TheLowestSeenIsTheLevel) {
  Spell spell(0, 1);
  const Timing first = spell.row();
  EXPECT_EQ(first.discarded_seconds, 0) << "nothing better is known";
  EXPECT_EQ(row_of(first).edge_us, 1.2) << "yet the row says it";
  spell.script.time = 1;
  EXPECT_EQ(row_of(spell.row()).edge_us, 1.0);
  EXPECT_EQ(spell.level.lowest_us, 1.0);
}

// 0.2 us are a half of a percent of 40 us.
TEST(Edges, OnlyWhatMovesTheMedianIsTakenAgain) {
  const auto discarded = [](double us, std::size_t kernels, double edge_us) {
    Spell spell(0, 0);
    spell.level.lowest_us = 1.0;
    spell.script.launch_us = [=](int) { return us; };
    spell.script.kernels = 0;
    spell.script.edge_us = [=](double) { return edge_us; };
    return spell.row({.kernels = kernels}).discarded_seconds > 0;
  };
  EXPECT_TRUE(discarded(39, 1, 1.2));
  EXPECT_FALSE(discarded(41, 1, 1.2));
  EXPECT_TRUE(discarded(41, 2, 1.2)) << "each of its kernels is behind an edge";
  EXPECT_TRUE(discarded(39, 0, 1.2)) << "their number is not known";
  EXPECT_FALSE(discarded(3, 1, 1 + 0.9 * kEdgeStepUs)) << "below what a look resolves";
  EXPECT_TRUE(discarded(3, 1, 1 + 1.1 * kEdgeStepUs));
}

TEST(Edges, AMachineWithoutThemHasABlankColumn) {
  Spell host(0, 0);
  host.script.edge_us = nullptr;
  const Timing timing = host.row({.host = true});
  EXPECT_EQ(timing.warm_us.size(), 40u);
  EXPECT_TRUE(timing.warm_edge_us.empty());
  EXPECT_FALSE(row_of(timing).edge_us);
  Spell nobody(0, 1e9);
  (void)measured(nobody.script);
  EXPECT_EQ(nobody.script.edge_calls, 0) << "a plan does not ask";
}

}  // namespace
}  // namespace noisefloor
