// Edges that became long are made short again by another process's turn.
#include "bench/measure/timing_loop.h"

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>

namespace noisefloor {
namespace {

constexpr double kShort = 0.846, kLong = 1.022;  // microseconds, of an H100

struct ShortEdgesTest : testing::Test {
  double us = kShort;
  int turns = 0, looks = 0;
  bool long_at_first = false;
  std::function<void()> each_turn = [this] { us = kShort; };
  std::vector<std::string> said;
  const EdgeLatency::Time time = [this](int samples) {
    return std::vector<double>(static_cast<std::size_t>(samples), ++looks == 1 && long_at_first ? kLong : us);
  };
  EdgeLatency edges() {
    return {time, [this] { ++turns, each_turn(); }, [this](const std::string& text) { said.push_back(text); }};
  }
  static void settle(EdgeLatency& edges, double expected) {
    EXPECT_EQ(edges.settle(3), std::vector<double>(3, expected));
  }
};

TEST_F(ShortEdgesTest, AreMadeShortAgainWhereTheyBecameLong) {
  EdgeLatency one = edges();
  settle(one, kShort);
  us = 1.05 * kShort;  // noise
  settle(one, us);
  EXPECT_EQ(turns, 0);
  for (int turn = 1; turn <= 2; ++turn) {
    us = kLong;
    settle(one, kShort);
    EXPECT_EQ(turns, turn);
  }
  EXPECT_TRUE(said.empty());
}

TEST_F(ShortEdgesTest, AskForNoMoreTurnsWhereOneDidNotHelp) {
  each_turn = [] {};
  EdgeLatency one = edges();
  us = kLong;
  settle(one, kLong);
  settle(one, kLong);
  EXPECT_EQ(turns, 1);
  us = kShort;
  settle(one, kShort);
  us = kLong;
  settle(one, kLong);
  EXPECT_EQ(turns, 2) << "they were short in between";
}

TEST_F(ShortEdgesTest, AreMeasuredByTheShortestOfTheFirstLooks) {
  long_at_first = true;
  EdgeLatency one = edges();
  us = kLong;
  settle(one, kShort);
}

TEST_F(ShortEdgesTest, SayOnceWhereThereIsNoOtherProcessAndAskAgain) {
  each_turn = [this] {
    if (turns <= 2) throw std::runtime_error("no memory for its context");
    us = kShort;
  };
  EdgeLatency one = edges();
  us = kLong;
  settle(one, kLong);
  settle(one, kLong);
  EXPECT_EQ(said, std::vector<std::string>{"edges stay long: no memory for its context"});
  settle(one, kShort);
}

TEST_F(ShortEdgesTest, AreLeftAloneWithoutATurn) {
  EdgeLatency alone(time, nullptr);
  us = kLong;
  settle(alone, kLong);
  EdgeLatency none([](int) { return std::vector<double>(); }, [] { FAIL(); });
  EXPECT_TRUE(none.settle(4).empty()) << "a host has no edges";
}

}  // namespace
}  // namespace noisefloor
