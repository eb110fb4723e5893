// Norms that convolutions do themselves, and those that halve an image: which nodes change, and which must stay.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"
#include "tests/support/rewritten.h"

namespace noisefloor::networks {
namespace {

struct NormCounts {
  int norms = 0, coefficients = 0, given = 0, normed = 0, leave_statistics = 0;
  friend bool operator==(const NormCounts&, const NormCounts&) = default;
};
NormCounts counted(const char* name, const BuildOptions& options, const std::optional<NormFusion>& which = kEveryNorm) {
  Network network = require_network(name).build(options);
  fuse(network, {.fuse_norms = which});
  NormCounts counts;
  for (const Node& node : network.graph.nodes()) {
    if (node.op->name == "groupnorm") {
      const auto& p = node.problem.as<groupnorm::Problem>();
      ++(p.coefficients ? counts.coefficients : counts.norms);
      counts.given += p.given();
    }
    if (node.op->name == "conv2d") {
      const auto& p = node.problem.as<conv2d::Problem>();
      counts.normed += p.norm != conv2d::Norm::none;
      counts.leave_statistics += p.stats;
      EXPECT_EQ(p.stats, p.patches) << node.text;
    }
  }
  return counts;
}

TEST(FuseNorms, OfAdm64LeavesTheNormsOfAttentionAndOfLayersThatAreNoHalo) {
  EXPECT_EQ(counted("adm64", {}, std::nullopt), (NormCounts{.norms = 95}));
  const NormCounts fused = counted("adm64", {});
  // Attention has 22, blocks that halve the image 3 more (average behind their norm).
  EXPECT_EQ(fused.norms, 22 + 3);
  EXPECT_EQ(fused.coefficients, 95 - fused.norms);
  EXPECT_EQ(fused.normed, fused.coefficients);
  EXPECT_EQ(fused.given, fused.leave_statistics);
  EXPECT_GT(fused.given, 36);  // every block's second norm is of its first convolution
}

TEST(FuseNorms, OfASmallTensorAreNotTried) {
  EXPECT_EQ(counted("adm64", {.batch = 1}, NormFusion{}), (NormCounts{.norms = 95}));
  // Of 64x64 alone, seven blocks of two, and the last layer: the block that makes them has 384 outputs.
  EXPECT_EQ(counted("adm64", {.batch = 32}, NormFusion{}).coefficients, 15);
}

// Who decides is asked once a norm, with the nodes on both sides; the others of the network stay what they are.
TEST(FuseNorms, AreThoseThatPay) {
  int asked = 0;
  NormFusion every_other = kEveryNorm;
  every_other.pays = [&](const std::vector<Change>& changes) {
    for (const auto& [node, problem, inputs] : changes) EXPECT_NE(node->text, node->op->print(problem));
    EXPECT_TRUE(changes.back().problem.as<groupnorm::Problem>().coefficients);
    return ++asked % 2 == 0;
  };
  const NormCounts all = counted("adm64", {}), some = counted("adm64", {}, every_other);
  EXPECT_EQ(asked, all.coefficients);
  EXPECT_EQ(some.coefficients, all.coefficients / 2);
  EXPECT_EQ(some.normed, some.coefficients);
  EXPECT_EQ(some.norms, 95 - some.coefficients);
}

// Images that are no whole patches leave no statistics; fp32 runs from no halo.
TEST(FuseNorms, WhereItCannotNothingChanges) {
  const NormCounts odd = counted("edm-cifar", {.sizes = {.height = 36, .width = 36}});
  EXPECT_EQ(odd.leave_statistics, 0);
  EXPECT_GT(odd.normed, 0);
  EXPECT_EQ(counted("digits", {.dtype = DType::fp32}).normed, 0);
}

// ---- images that are halved behind a norm

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
    fuse(made.network, {.fold_skips = true, .runs = runs});
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
