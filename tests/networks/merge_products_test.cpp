// Short products that share A become one, and their readers take its parts.
#include "networks/merge_products.h"

#include <gtest/gtest.h>

#include <set>

#include "networks/unfused.h"

namespace noisefloor::networks {
namespace {

// How often each op is asked for.
std::map<std::string, int> ops_of(const Graph& graph) {
  std::map<std::string, int> ops;
  for (const Node& node : graph.nodes()) ++ops[node.op->name];
  return ops;
}

struct Projections {
  Network network;
  ValueId shared, other;

  explicit Projections(std::int64_t rows = 1) {
    shared = network.graph.input("shared", {rows, 16}, DType::fp32);
    other = network.graph.input("other", {rows, 16}, DType::fp32);
    network.inputs.push_back({"other", NetworkTensor::Kind::conditioning, other, {rows, 16}});
    network.inputs.push_back({"shared", NetworkTensor::Kind::conditioning, shared, {rows, 16}});
  }
  // Of `n` columns, then SiLU of it.
  void project(const char* name, ValueId from, std::int64_t n, const std::string& more = "") {
    Graph& graph = network.graph;
    const std::int64_t rows = graph[from].shape[0];
    const ValueId w = graph.weight({std::string(name) + ".weight", {n, 16}}, {n, 16}, DType::fp32);
    const ValueId bias = graph.weight({std::string(name) + ".bias", {n}}, {n}, DType::fp32);
    const ValueId d = graph
                          .add(name, "gemm", "m=" + std::to_string(rows) + ",n=" + std::to_string(n) + ",k=16" + more,
                               DType::fp32, {{"a", from}, {"b", w}, {"bias", bias}})
                          .at(0);
    const ValueId y =
        graph
            .add(std::string(name) + ".silu", "elementwise",
                 "op=silu,n=" + std::to_string(rows) + ",hw=1,channels=" + std::to_string(n), DType::fp32, {{"x", d}})
            .at(0);
    network.outputs.push_back({name, NetworkTensor::Kind::image, y, {rows, n}});
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
  merge_products(p.network);

  const Graph& graph = p.network.graph;
  EXPECT_EQ(ops_of(graph), (std::map<std::string, int>{{"gemm", 4}, {"elementwise", 6}}));
  const Node& merged = graph.nodes().front();
  EXPECT_EQ(merged.name, "first and 2 more");
  EXPECT_EQ(merged.text, "m=1,n=40,k=16");
  using Tensors = std::vector<WeightSource::Below>;
  EXPECT_EQ(graph[merged.values[1]].source->tensors(),
            (Tensors{{"first.weight", 8}, {"second.weight", 24}, {"third.weight", 8}}));
  EXPECT_EQ(graph[merged.values[2]].source->tensors(),
            (Tensors{{"first.bias", 8}, {"second.bias", 24}, {"third.bias", 8}}));
  EXPECT_EQ(merged.values[0], p.network.inputs[1].value);
  EXPECT_EQ(graph[p.network.inputs[0].value].name, "other");

  std::map<std::string, std::int64_t> first;  // element of the merged product that a reader begins at
  for (const Node& node : graph.nodes())
    if (const auto& part = graph[node.values[0]].part) {
      EXPECT_EQ(part->of, merged.values.back());
      first[node.name] = part->first;
    }
  EXPECT_EQ(first, (std::map<std::string, std::int64_t>{{"first.silu", 0}, {"second.silu", 8}, {"third.silu", 32}}));
  for (const NetworkTensor& output : p.network.outputs)
    EXPECT_EQ(graph[output.value].name, std::string(output.name) + ".silu.y");
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
  merge_products(p.network);

  const Graph& graph = p.network.graph;
  EXPECT_EQ(ops_of(graph), (std::map<std::string, int>{{"gemm", 5}, {"elementwise", 7}}));
  const Node& merged = graph.nodes().front();
  EXPECT_EQ(merged.name, "first and 2 more");
  EXPECT_EQ(merged.text, "m=3,n=96,k=16,part_columns=32");
  EXPECT_EQ(graph[merged.values.back()].shape, (std::vector<std::int64_t>{3, 3, 32}));
  using Tensors = std::vector<WeightSource::Below>;
  EXPECT_EQ(graph[merged.values[1]].source->tensors(),
            (Tensors{{"first.weight", 32}, {"second.weight", 32}, {"third.weight", 32}}));
  EXPECT_EQ(graph[merged.values[2]].source->tensors(),
            (Tensors{{"first.bias", 32}, {"second.bias", 32}, {"third.bias", 32}}));
  std::map<std::string, std::int64_t> first;
  for (const Node& node : graph.nodes())
    if (const auto& part = graph[node.values[0]].part) {
      EXPECT_EQ(part->of, merged.values.back());
      EXPECT_EQ(graph[node.values[0]].shape, (std::vector<std::int64_t>{3, 32}));
      first[node.name] = part->first;
    }
  EXPECT_EQ(first, (std::map<std::string, std::int64_t>{{"first.silu", 0}, {"second.silu", 96}, {"third.silu", 192}}));
}

TEST(MergeProducts, LongOnesStayApart) {
  Projections p(132 * 128);
  for (const char* name : {"first", "second"}) p.project(name, p.shared, 128 + 32);
  merge_products(p.network);
  EXPECT_EQ(ops_of(p.network.graph)["gemm"], 2);
}

// One image's networks are those of two but for the merged products, and read the same weights.
TEST(MergeProducts, LeaveNetworksWhatTheyAre) {
  for (const NetworkInfo& info : all_networks()) {
    const Network one = info.build({.batch = 1}), two = info.build({.batch = 2});
    std::set<std::string> weights[2];
    for (const Network* network : {&one, &two})
      for (const Value& value : network->graph.values())
        if (value.source)
          for (const auto& tensor : value.source->tensors()) weights[network == &two].insert(tensor.name);
    EXPECT_EQ(weights[0], weights[1]) << info.name;
    auto merged = ops_of(one.graph), apart = ops_of(two.graph);
    EXPECT_LE(merged["gemm"], apart["gemm"]) << info.name;
    merged.erase("gemm");
    apart.erase("gemm");
    EXPECT_EQ(merged, apart) << info.name;
  }
  const auto gemms = [](std::int64_t batch) {
    return ops_of(require_network("adm64").build({.batch = batch}).graph)["gemm"];
  };
  EXPECT_EQ(gemms(2) - gemms(1), 3);  // 36 residual blocks of four widths
}

}  // namespace
}  // namespace noisefloor::networks
