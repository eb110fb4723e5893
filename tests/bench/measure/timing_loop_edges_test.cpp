// Edges between kernels, beside the warm phases of the measuring loop.
#include <gtest/gtest.h>

#include "tests/support/scripted_timing.h"

namespace noisefloor {
namespace {

// Launches of 3 us, behind edges of 1 us and 1.2 us from `from` to `to`.
struct Spell {
  double from = 0, to = 0;
  ScriptedTiming script{};

  Spell(double from_s, double to_s) : from(from_s), to(to_s) {
    script.launch_us = [](int) { return 3.0; };
    script.edge_us = [this](double time) { return time >= from && time < to ? 1.2 : 1.0; };
  }
  Spell(const Spell&) = delete;

  Timing row(TimingOptions options = {}, bool serial = false) {
    options.look_at_edges = true;
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

// What a search left before a phase is gone in it.
TEST(Edges, AreMadeShortBeforeEachWarmPhaseAndNotBehindIt) {
  Spell spell(0, 0);
  double us = 1.2;
  spell.script.edge_us = [&](double) { return us; };
  spell.script.settle = [&] { us = spell.script.settle_calls == 1 ? 1.0 : 1.1; };
  const Timing timing = spell.row({}, /*serial=*/true);
  EXPECT_EQ(spell.script.settle_calls, 2);
  EXPECT_EQ(timing.warm_edge_us, std::vector<double>(8, 1.0));
  EXPECT_EQ(timing.warm_serial_edge_us, std::vector<double>(8, 1.1));
}

// A look on either side sees a spell that begins within a phase.
TEST(Edges, OfBothSidesAreKept) {
  Spell spell(0, 0);
  spell.script.edge_us = [&](double) { return spell.script.warm_calls.size() >= 4 ? 1.2 : 1.0; };
  const Timing timing = spell.row();
  EXPECT_EQ(timing.warm_edge_us, (std::vector<double>{1, 1, 1, 1, 1.2, 1.2, 1.2, 1.2}));
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
