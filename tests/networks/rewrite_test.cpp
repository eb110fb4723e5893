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
