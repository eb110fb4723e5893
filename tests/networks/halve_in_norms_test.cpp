// Images that are halved behind a norm: which averages fall away, and which must stay.
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/rewritten.h"

namespace noisefloor::networks {
namespace {

const Names kApart{"norm", "h_upd", "x_upd", "after y", "after x"};

// The beginning of a residual block that halves an image of 4x8: a norm, the average of what it writes, and that of x.
struct Down {
  std::string norm = "n=2,hw=32,channels=16,groups=2,fusion=silu";
  std::string of_y = "op=average_down2,n=2,h=4,w=8,channels=16", of_x = of_y;
  bool x_first = false;  // the average of x stands in front of the norm
  std::function<void(Handmade&, ValueId normed)> also = [](auto&&...) {};
  Handmade made = {};

  Names halve(const Runs& runs = anything) {
    const ValueId x = made.input("x", {2, 4, 8, 16});
    const auto skip = [&] { return of_x.empty() ? x : made.add("x_upd", "resample", of_x, {{"x", x}}); };
    const ValueId first = x_first ? skip() : x;
    const ValueId normed =
        made.add("norm", "groupnorm", norm,
                 {{"x", x}, {"gamma", made.weight("gamma", {16})}, {"beta", made.weight("beta", {16})}});
    const ValueId y = made.add("h_upd", "resample", of_y, {{"x", normed}});
    const ValueId down = x_first ? first : skip();
    also(made, normed);
    made.give_silu("after y", y);
    made.give_silu("after x", down);
    fuse(made.network, {.halve_in_norms = true, .runs = runs});
    return names_of(made.network);
  }
};

TEST(HalveInNorms, OneNodeWritesBothAverages) {
  Down down;
  EXPECT_EQ(down.halve(), (Names{"norm", "after y", "after x"}));
  const Node& norm = node_of(down.made.network, "norm");
  EXPECT_EQ(norm.text, "n=2,hw=32,channels=16,groups=2,fusion=silu,down_w=8");
  EXPECT_EQ(node_of(down.made.network, "after y").value("x"), norm.value("y"));
  EXPECT_EQ(node_of(down.made.network, "after x").value("x"), norm.value("x_down"));
  EXPECT_EQ(down.made.network.graph[norm.value("y")].elements(), 2 * 2 * 4 * 16);
}

TEST(HalveInNorms, WhatIsReadOtherwiseStays) {
  EXPECT_EQ((Down{.of_x = "op=nearest_up2,n=2,h=4,w=8,channels=16"}.halve()), kApart);
  EXPECT_EQ((Down{.of_x = "op=average_down2,n=2,h=8,w=4,channels=16"}.halve()), kApart);
  EXPECT_EQ(Down{.of_x = ""}.halve(), (Names{"norm", "h_upd", "after y", "after x"}));
  EXPECT_EQ(Down{.x_first = true}.halve(), (Names{"x_upd", "norm", "h_upd", "after y", "after x"}));
  EXPECT_EQ((Down{.norm = "n=2,hw=32,channels=16,groups=2,fusion=silu,stats=1"}.halve()), kApart);
  Down read{.also = [](Handmade& made, ValueId normed) { made.give_silu("more", normed); }};
  EXPECT_EQ(read.halve(), (Names{"norm", "h_upd", "x_upd", "more", "after y", "after x"}));
  Down given{.also = [](Handmade& made, ValueId normed) { made.give("normed", normed); }};
  EXPECT_EQ(given.halve(), kApart);
}

TEST(HalveInNorms, WhatNothingHereRunsStays) {
  EXPECT_EQ(Down{}.halve(nothing), kApart);
  EXPECT_EQ(Down{}.halve(runs_on_sm90a), kApart);  // in fp32, which no variant of ours in PTX has
}

}  // namespace
}  // namespace noisefloor::networks
