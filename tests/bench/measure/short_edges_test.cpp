// Edges that became long are made short again by another process's turn.
#include "bench/measure/short_edges.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace noisefloor {
namespace {

constexpr double kShort = 0.846, kLong = 1.022;  // microseconds, of an H100

struct Gpu {
  double us = kShort;
  int turns = 0;
  bool heals = true;
  ShortEdges::Time time = [this](int samples) { return std::vector<double>(static_cast<std::size_t>(samples), us); };
  ShortEdges::Turn turn = [this] {
    ++turns;
    if (heals) us = kShort;
  };
};

TEST(ShortEdges, TakeNoTurnWhileTheyAreShort) {
  Gpu gpu;
  ShortEdges edges(gpu.time, gpu.turn);
  EXPECT_EQ(edges.settle(3), std::vector<double>(3, kShort));
  gpu.us = 1.05 * kShort;  // noise
  EXPECT_EQ(edges.settle(1).front(), 1.05 * kShort);
  EXPECT_EQ(gpu.turns, 0);
}

TEST(ShortEdges, AreMadeShortAgain) {
  Gpu gpu;
  ShortEdges edges(gpu.time, gpu.turn);
  for (int time = 1; time <= 2; ++time) {
    gpu.us = kLong;
    EXPECT_EQ(edges.settle(4), std::vector<double>(4, kShort));
    EXPECT_EQ(gpu.turns, time);
  }
  EXPECT_EQ(edges.take_message(), "");
}

TEST(ShortEdges, AskForNoMoreTurnsWhereOneDidNotHelp) {
  Gpu gpu;
  gpu.heals = false;
  ShortEdges edges(gpu.time, gpu.turn);
  gpu.us = kLong;
  EXPECT_EQ(edges.settle(2), std::vector<double>(2, kLong));
  EXPECT_EQ(edges.settle(2), std::vector<double>(2, kLong));
  EXPECT_EQ(gpu.turns, 1);
  gpu.us = kShort;
  (void)edges.settle(1);
  gpu.us = kLong;
  (void)edges.settle(1);
  EXPECT_EQ(gpu.turns, 2) << "they were short in between";
}

TEST(ShortEdges, AreMeasuredByTheShortestOfTheFirstLooks) {
  Gpu gpu;
  int looks = 0;
  ShortEdges edges(
      [&](int samples) {
        return std::vector<double>(static_cast<std::size_t>(samples), ++looks == 1 ? kLong : gpu.us);
      },
      gpu.turn);
  gpu.us = kLong;
  (void)edges.settle(1);
  EXPECT_EQ(gpu.turns, 1);
}

TEST(ShortEdges, SayWhereThereIsNoOtherProcessAndAskAgain) {
  Gpu gpu;
  int asked = 0;
  ShortEdges edges(gpu.time, [&] {
    if (++asked > 2) return gpu.turn();
    throw std::runtime_error("no memory for its context");
  });
  gpu.us = kLong;
  EXPECT_EQ(edges.settle(1).front(), kLong);
  EXPECT_EQ(edges.settle(1).front(), kLong);
  EXPECT_EQ(edges.take_message(), "edges stay long: no memory for its context");
  EXPECT_EQ(edges.take_message(), "");
  EXPECT_EQ(edges.settle(1).front(), kShort) << "the next phase asks again";
}

TEST(ShortEdges, AreLeftAloneWithoutATurn) {
  Gpu gpu;
  ShortEdges edges(gpu.time, nullptr);
  gpu.us = kLong;
  EXPECT_EQ(edges.settle(1).front(), kLong);
  ShortEdges none([](int) { return std::vector<double>(); }, gpu.turn);
  EXPECT_TRUE(none.settle(4).empty()) << "a host has no edges";
  EXPECT_EQ(gpu.turns, 0);
}

}  // namespace
}  // namespace noisefloor
