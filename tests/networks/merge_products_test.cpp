// Short products that share A become one, and their readers take its parts.
#include <gtest/gtest.h>

#include "tests/support/rewritten.h"

namespace noisefloor::networks {
namespace {

using Tensors = std::vector<WeightSource::Below>;

struct Projections : Handmade {
  ValueId shared, other;

  explicit Projections(std::int64_t rows = 1) {
    other = input("other", {rows, 16});
    shared = input("shared", {rows, 16});
  }
  // Of `n` columns, then SiLU of it.
  void project(const std::string& name, ValueId from, std::int64_t n, const std::string& more = "") {
    const std::string rows = std::to_string(network.graph[from].shape[0]), columns = std::to_string(n);
    const ValueId d =
        add(name, "gemm", "m=" + rows + ",n=" + columns + ",k=16" + more,
            {{"a", from}, {"b", weight(name + ".weight", {n, 16})}, {"bias", weight(name + ".bias", {n})}});
    give("y", add(name + ".silu", "elementwise", "op=silu,n=" + rows + ",hw=1,channels=" + columns, {{"x", d}}));
  }
  const Graph& merge() {
    fuse(network, {.merge_products = true});
    return network.graph;
  }
  // By reader: the element of the merged product that it begins at.
  std::map<std::string, std::int64_t> parts_of(const Node& merged) const {
    std::map<std::string, std::int64_t> first;
    for (const Node& node : network.graph.nodes())
      if (const auto& part = network.graph[node.values[0]].part) {
        EXPECT_EQ(part->of, merged.value("d"));
        first[node.name] = part->first;
      }
    return first;
  }
};

TEST(MergeProducts, OfARowThatTheyShareAreOne) {
  Projections p;
  p.project("first", p.shared, 8);
  p.project("apart", p.other, 8);
  p.project("second", p.shared, 24);
  p.project("odd", p.shared, 12);
  p.project("third", p.shared, 8);
  p.project("active", p.shared, 8, ",act=silu");
  const Graph& graph = p.merge();
  EXPECT_EQ(ops_of(graph), (std::map<std::string, int>{{"gemm", 4}, {"elementwise", 6}}));
  const Node& merged = graph.nodes().front();
  EXPECT_EQ(merged.name, "first and 2 more");
  EXPECT_EQ(merged.text, "m=1,n=40,k=16");
  EXPECT_EQ(graph[merged.values[1]].source->tensors(),
            (Tensors{{"first.weight", 8}, {"second.weight", 24}, {"third.weight", 8}}));
  EXPECT_EQ(graph[merged.values[2]].source->tensors(),
            (Tensors{{"first.bias", 8}, {"second.bias", 24}, {"third.bias", 8}}));
  EXPECT_EQ(merged.values[0], p.network.inputs[1].value);
  EXPECT_EQ(graph[p.network.inputs[0].value].name, "other");

  EXPECT_EQ(p.parts_of(merged),
            (std::map<std::string, std::int64_t>{{"first.silu", 0}, {"second.silu", 8}, {"third.silu", 32}}));
  EXPECT_EQ(graph[p.network.outputs.at(2).value].name, "second.silu.y");
}

TEST(MergeProducts, OfSeveralRowsAreOneForEachWidth) {
  Projections p(3);
  p.project("first", p.shared, 32);
  p.project("wide", p.shared, 64);
  p.project("second", p.shared, 32);
  p.project("narrow", p.shared, 8);
  p.project("narrow too", p.shared, 8);
  p.project("apart", p.other, 32);
  p.project("third", p.shared, 32);
  const Graph& graph = p.merge();
  EXPECT_EQ(ops_of(graph), (std::map<std::string, int>{{"gemm", 5}, {"elementwise", 7}}));
  const Node& merged = graph.nodes().front();
  EXPECT_EQ(merged.name, "first and 2 more");
  EXPECT_EQ(merged.text, "m=3,n=96,k=16,part_columns=32");
  EXPECT_EQ(graph[merged.values.back()].shape, (std::vector<std::int64_t>{3, 3, 32}));
  EXPECT_EQ(graph[merged.values[1]].source->tensors(),
            (Tensors{{"first.weight", 32}, {"second.weight", 32}, {"third.weight", 32}}));
  EXPECT_EQ(graph[merged.values[2]].source->tensors(),
            (Tensors{{"first.bias", 32}, {"second.bias", 32}, {"third.bias", 32}}));
  EXPECT_EQ(p.parts_of(merged),
            (std::map<std::string, std::int64_t>{{"first.silu", 0}, {"second.silu", 96}, {"third.silu", 192}}));
}

TEST(MergeProducts, LongOnesStayApart) {
  Projections p(132 * 128);
  for (const char* name : {"first", "second"}) p.project(name, p.shared, 128 + 32);
  EXPECT_EQ(ops_of(p.merge())["gemm"], 2);
}

// Of one image the projections of 36 residual blocks are one product, of two one for each of four widths.
TEST(MergeProducts, ChangeProductsAlone) {
  for (const NetworkInfo& info : all_networks()) {
    auto merged = ops_of(info.build({.batch = 1}).graph), apart = ops_of(info.build({.batch = 2}).graph);
    EXPECT_LE(merged["gemm"], apart["gemm"]) << info.name;
    if (info.name == std::string("adm64")) {
      EXPECT_EQ(apart["gemm"] - merged["gemm"], 3);
    }
    merged.erase("gemm");
    apart.erase("gemm");
    EXPECT_EQ(merged, apart) << info.name;
  }
}

}  // namespace
}  // namespace noisefloor::networks
