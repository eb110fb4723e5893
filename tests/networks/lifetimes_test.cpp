// Where activations lie: those alive together apart, and little more than what is alive at once. And what a
// kernel may read early.
#include "networks/lifetimes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

RC_GTEST_PROP(Arena, ValuesAliveTogetherDoNotOverlap, ()) {
  const auto count = *rc::gen::inRange<std::size_t>(1, 60);
  std::vector<Lifetime> lives;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = *rc::gen::inRange<std::size_t>(0, 40);
    lives.push_back({*rc::gen::inRange<std::size_t>(0, 5000), first, first + *rc::gen::inRange<std::size_t>(0, 10)});
  }
  const Placement placement = place(lives);
  std::size_t sum = 0;
  for (const Lifetime& life : lives) sum += aligned(life.bytes);
  RC_ASSERT(placement.bytes <= sum);
  for (std::size_t a = 0; a < count; ++a) {
    RC_ASSERT(placement.offsets[a] % kAlignment == 0);
    RC_ASSERT(placement.offsets[a] + lives[a].bytes <= placement.bytes || lives[a].bytes == 0);
    for (std::size_t b = a + 1; b < count; ++b) {
      const bool together = lives[a].first <= lives[b].last && lives[b].first <= lives[a].last;
      const bool apart = placement.offsets[a] + lives[a].bytes <= placement.offsets[b] ||
                         placement.offsets[b] + lives[b].bytes <= placement.offsets[a];
      RC_ASSERT(!together || apart || lives[a].bytes == 0 || lives[b].bytes == 0);
    }
  }
}

TEST(Arena, NetworksNeedLittleMoreThanWhatIsAliveAtOnce) {
  for (const NetworkInfo& info : all_networks()) {
    const Network network = info.build({.batch = 4});
    const auto lives = activation_lifetimes(network.graph, network.output_values());
    std::size_t most = 0;
    for (std::size_t step = 0; step < network.graph.nodes().size(); ++step) {
      std::size_t alive = 0;
      for (const Lifetime& life : lives)
        if (life.first <= step && step <= life.last) alive += aligned(life.bytes);
      most = std::max(most, alive);
    }
    EXPECT_GE(place(lives).bytes, most) << info.name;
    EXPECT_LE(static_cast<double>(place(lives).bytes), 1.25 * static_cast<double>(most)) << info.name;
  }
}

// Of a sampling loop, what is computed before it overlaps nothing that a call writes.
TEST(Arena, WhatACallReadsFromBeforeTheLoopLivesToItsEnd) {
  const Network network = require_network("sd15").build({.sampling = true});
  const std::vector<bool> each = nodes_of_each_call(network);
  const auto once = static_cast<std::size_t>(std::count(each.begin(), each.end(), false));
  EXPECT_EQ(once, 3u);  // keys and values, of three widths
  const auto lives = activation_lifetimes(network.graph, network.output_values(), each);
  for (std::size_t node = 0; node < each.size(); ++node) {
    const ValueId written = network.graph.nodes()[node].values.back();
    EXPECT_EQ(lives[written].first < once, !each[node]) << network.graph.nodes()[node].name;
    if (each[node]) continue;
    EXPECT_EQ(lives[written].last, each.size()) << network.graph.nodes()[node].name;
  }
  const Network call = require_network("sd15").build({});
  EXPECT_EQ(nodes_of_each_call(call), std::vector<bool>(call.graph.nodes().size(), true));
}

TEST(Arena, WhatLivesAtAStepIsSummed) {
  const std::vector<Lifetime> lives = {{100, 0, 2}, {20, 2, 2}, {3, 3, 9}, {0, 0, 9}};
  for (const auto& [step, bytes] : {std::pair<std::size_t, std::size_t>{0, 100}, {2, 120}, {3, 3}, {9, 3}, {10, 0}})
    EXPECT_EQ(bytes_alive(lives, step), bytes) << step;
}

TEST(Arena, AValueLivesFromItsWriterToItsLastReader) {
  const Network network = all_networks().front().build({.batch = 2});
  const auto& nodes = network.graph.nodes();
  const auto lives = activation_lifetimes(network.graph, network.output_values());
  for (ValueId id = 0; id < lives.size(); ++id) {
    if (network.graph[id].kind != Value::Kind::activation || network.graph[id].part) {
      EXPECT_EQ(lives[id].bytes, 0u) << network.graph[id].name;
      continue;
    }
    const auto is_of_it = [&](ValueId value) {
      return value == id || (network.graph[value].part && network.graph[value].part->of == id);
    };
    std::size_t first = nodes.size(), last = 0;
    for (std::size_t step = 0; step < nodes.size(); ++step) {
      if (std::ranges::none_of(nodes[step].values, is_of_it)) continue;
      first = std::min(first, step);
      last = step;
    }
    if (first == nodes.size()) continue;  // products became one
    EXPECT_EQ(lives[id].bytes, network.graph[id].bytes());
    EXPECT_EQ(lives[id].first, first) << network.graph[id].name;
    EXPECT_EQ(lives[id].last, id == network.output() ? nodes.size() : last) << network.graph[id].name;
  }
}

// ---- what a kernel may read early

TEST(Dependence, AResidualIsReadBesideTheFirstTensor) {
  Graph graph;
  const ValueId x = graph.input("x", {1, 4, 4, 8}, DType::bf16);
  const auto conv = [&](const char* name, ValueId from, std::map<std::string, ValueId> more) {
    const bool residual = !more.empty();
    more["x"] = from;
    more["w"] = graph.weight({name, {8, 8, 1, 1}}, {8, 1, 1, 8}, DType::bf16);
    return graph.add(name, "conv2d",
                     std::string("n=1,h=4,w=4,cin=8,cout=8,kernel=1,bias=0") + (residual ? ",residual=1" : ""),
                     DType::bf16, more)[0];
  };
  const ValueId skip = conv("skip", x, {}), inner = conv("inner", x, {});
  conv("last", inner, {{"residual", skip}});
  const auto& nodes = graph.nodes();
  const Node *first = &nodes[0], *second = &nodes[1];
  EXPECT_TRUE(reads_beside_first(graph, nodes[2], std::vector{first}));
  EXPECT_FALSE(reads_beside_first(graph, nodes[2], std::vector{second}));  // its first tensor
  EXPECT_TRUE(reads_beside_first(graph, nodes[2], std::vector{first, second}));
  EXPECT_FALSE(reads_beside_first(graph, nodes[1], std::vector{first}));
  EXPECT_FALSE(reads_beside_first(graph, nodes[2], {}));
}

// What a product may read early. Its kernels take the second tensor for the weights.
TEST(Dependence, WeightsAreSecondOfProductsAndNoActivationIsOne) {
  for (const char* name : {"sd15", "svd", "adm64", "moving-digits"}) {
    const Network network = require_network(name).build({});
    int products = 0;
    for (const Node& node : network.graph.nodes()) {
      const std::uint64_t weights = weights_of(network.graph, node);
      const auto specs = node.op->tensors(node.problem, node.dtype);
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const bool is_weight = network.graph[node.values[i]].kind == Value::Kind::weight;
        EXPECT_EQ((weights >> i & 1) != 0, is_weight) << name << ", " << node.name << ", " << specs[i].name;
        EXPECT_TRUE(!is_weight || specs[i].role == Role::in) << name << ", " << node.name << " writes its weights";
      }
      if (node.op->name != "gemm" && !node.op->name.starts_with("conv")) continue;
      EXPECT_TRUE(specs[1].name == std::string_view("b") || specs[1].name == std::string_view("w"))
          << node.op->name << ": " << specs[1].name;
      EXPECT_TRUE(weights >> 1 & 1) << name << ", " << node.name;
      ++products;
    }
    EXPECT_GT(products, 0) << name;
  }
}

}  // namespace
}  // namespace noisefloor::networks
