// What patterns change graphs with; and of every network that its rewrites keep it whole.
#include "networks/rewrite.h"

#include <gtest/gtest.h>

#include "kernels/gemm/gemm.h"
#include "tests/support/refusal.h"
#include "tests/support/rewritten.h"
#include "tests/support/small_networks.h"

namespace noisefloor::networks {
namespace {

// Products of one row and 8 columns, each of what the one before it wrote; the last is given.
struct Chain : Handmade {
  explicit Chain(const Names& names) {
    ValueId last = input("x", {1, 8});
    for (const std::string& name : names)
      last = add(name, "gemm", "m=1,n=8,k=8,bias=0", {{"a", last}, {"b", weight(name + ".w", {8, 8})}});
    give("y", last);
  }
  const Node& node(const std::string& name) { return node_of(network, name); }
};

TEST(Rewrite, KnowsWhoWritesAndWhoReads) {
  Chain chain({"first", "second"});
  const ValueId between = chain.node("first").value("d");
  chain.give_silu("also", between);
  Rewrite rewrite(chain.network);
  EXPECT_EQ(rewrite.writer(between), &chain.node("first"));
  ASSERT_EQ(rewrite.uses(between).size(), 2u);
  EXPECT_EQ(rewrite.uses(between)[0].node, &chain.node("second"));
  EXPECT_EQ(rewrite.uses(between)[0].tensor, "a");
  EXPECT_EQ(rewrite.writer_for_one(between), nullptr);
  EXPECT_EQ(rewrite.writer_for_one(chain.node("second").value("d")), &chain.node("second"));
  EXPECT_EQ(rewrite.writer(chain.node("first").value("a")), nullptr);  // an input
  const ValueId part = chain.network.graph.part(between, "half", 4, {1, 4});
  EXPECT_EQ(rewrite.writer(part), nullptr);
  EXPECT_TRUE(rewrite.runs_before(chain.node("first"), chain.node("second")));
}

TEST(Rewrite, WhatNothingReadsAnyMoreFallsAwayWithItsWeights) {
  Chain chain({"first", "second", "third"});
  Rewrite rewrite(chain.network);
  rewrite.redirect(chain.node("second").value("d"), chain.network.inputs[0].value);
  rewrite.finish();
  EXPECT_EQ(names_of(chain.network), Names{"third"});
  for (const Value& value : chain.network.graph.values())
    EXPECT_EQ(value.kind == Value::Kind::weight, value.name == "third.w") << value.name;
  EXPECT_EQ(chain.node("third").value("a"), chain.network.inputs[0].value);
  EXPECT_EQ(chain.network.outputs[0].value, chain.node("third").value("d"));
  const ValueId again = chain.weight("first.w", {8, 8});
  EXPECT_EQ(chain.network.graph[again].kind, Value::Kind::weight);
}

TEST(Rewrite, ANodeStandsInThePlaceOfAnother) {
  Chain chain({"first", "second"});
  Rewrite rewrite(chain.network);
  const ValueId bias = chain.weight("bias", {8});
  auto problem = chain.node("first").problem.as<gemm::Problem>();
  problem.bias = true;
  rewrite.replace({&chain.node("first"), AnyProblem(problem), {{"bias", bias}}});
  rewrite.finish();
  EXPECT_EQ(names_of(chain.network), (Names{"first", "second"}));
  EXPECT_EQ(tensor_of(chain.network, "first", "bias").name, "bias");
  EXPECT_EQ(tensor_of(chain.network, "first", "b").name, "first.w");
  EXPECT_EQ(chain.node("second").value("a"), chain.node("first").value("d"));
}

TEST(Rewrite, PartsLieInWhatTheirReadersRead) {
  Chain chain({"first"});
  Graph& graph = chain.network.graph;
  const Node& first = chain.node("first");
  chain.give_silu("read", graph.part(first.value("d"), "half", 4, {1, 4}));
  Rewrite rewrite(chain.network);
  auto problem = first.problem.as<gemm::Problem>();
  problem.n = 16;
  const Node& wide = rewrite.add(first, "wide", AnyProblem(problem),
                                 {{"a", first.value("a")}, {"b", chain.weight("wide.w", {16, 8})}});
  rewrite.redirect(first.value("d"), graph.part(wide.value("d"), "second half", 8, {1, 8}));
  rewrite.finish();
  EXPECT_EQ(names_of(chain.network), (Names{"wide", "read"}));
  const Value& read = tensor_of(chain.network, "read", "x");
  EXPECT_EQ(read.part->of, chain.node("wide").value("d"));
  EXPECT_EQ(read.part->first, 8 + 4);
}

TEST(Rewrite, RefusesAnOrderInWhichANodeReadsWhatIsNotWritten) {
  Chain chain({"first", "second", "third"});
  Rewrite rewrite(chain.network);
  rewrite.redirect(chain.node("first").value("d"), chain.node("third").value("d"));
  expect_parts(refusal_of<std::logic_error>([&] { rewrite.finish(); }), {"node second reads third.d"});
}

// ---- networks

struct Counted {
  int products = 0, resamplings = 0, launches = 0;  // that fall away; launches: that are left
  friend bool operator==(const Counted&, const Counted&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Counted& c) {
    return out << c.products << ", " << c.resamplings << ", " << c.launches;
  }
};
Counted counted(const NetworkInfo& info, const Fusions& fusions, std::int64_t batch = 1) {
  Network network = info.build({.batch = batch});
  auto before = ops_of(network.graph);
  fuse(network, fusions);
  auto after = ops_of(network.graph);
  return {before["conv2d"] + before["gemm"] - after["conv2d"] - after["gemm"], before["resample"] - after["resample"],
          static_cast<int>(network.graph.nodes().size())};
}

TEST(Rewrites, OfNetworksThatHaveTheirPatterns) {
  const std::map<std::string, Counted> folded{
      {"adm64", {19, 25, 243}}, {"edm-cifar", {20, 19, 170}}, {"digits", {6, 6, 65}},     {"moving-digits", {4, 2, 89}},
      {"sd15", {14, 12, 330}},  {"sdxl", {11, 9, 891}},       {"svd", {14, 12, 622}},     {"sd-vae", {2, 0, 69}},
      {"sdxl-vae", {2, 0, 69}}, {"svd-vae", {2, 0, 125}},     {"mnist-unet", {0, 0, 26}}, {"unetcu", {15, 12, 147}}};
  for (const NetworkInfo& info : all_networks()) {
    SCOPED_TRACE(info.name);
    for (const Runs& runs : {Runs(anything), Runs(runs_on_sm90a)}) {
      const Counted left = counted(info, {.fold_skips = true, .runs = runs});
      EXPECT_EQ(left, folded.contains(info.name) ? folded.at(info.name) : left);
    }
    EXPECT_EQ(counted(info, {.fold_skips = true, .fuse_norms = kEveryNorm}).resamplings,
              folded.contains(info.name) ? folded.at(info.name).resamplings : 0);  // which leave them as they are
  }
  EXPECT_EQ(counted(require_network("adm64"), {.fold_skips = true}, 32), (Counted{19, 25, 246}));
}

// That each node reads what one before it writes finish() holds.
TEST(Rewrites, ReadTheSameCheckpoint) {
  for (const NetworkInfo& info : all_networks())
    for (const std::int64_t batch : {1, 2}) {
      SCOPED_TRACE(info.name);
      const BuildOptions apart{.batch = batch, .merge_products = false};
      Network network = info.build(apart);
      fuse(network, {.merge_products = true, .fold_skips = true, .fuse_norms = kEveryNorm, .runs = anything});
      EXPECT_EQ(checkpoint_of(network.graph), checkpoint_of(info.build(apart).graph));
    }
}

}  // namespace
}  // namespace noisefloor::networks
