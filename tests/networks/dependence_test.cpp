// What a sampling loop would compute once: by counting nodes of networks whose layers are known.
#include "networks/lifetimes.h"

#include <gtest/gtest.h>

#include <string_view>

#include <map>
#include <string>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "networks/network.h"

namespace noisefloor::networks {
namespace {

using Kind = NetworkTensor::Kind;

// Products that became one count each.
int layers_of(const Node& node) {
  return node.op->name == "gemm" ? static_cast<int>(node.problem.as<gemm::Problem>().parts()) : 1;
}

std::map<std::string, int> ops_not_reached(const Network& network, std::vector<ValueId> inputs) {
  const std::vector<bool> reached = nodes_reached_by(network.graph, inputs);
  EXPECT_EQ(reached.size(), network.graph.nodes().size());
  std::map<std::string, int> counts;
  for (std::size_t node = 0; node < reached.size(); ++node)
    if (!reached[node]) counts[network.graph.nodes()[node].op->name] += layers_of(network.graph.nodes()[node]);
  return counts;
}

TEST(Dependence, OfTextAloneAreKeysAndValues) {
  for (const auto& [name, transformers] : {std::pair{"sd15", 16}, std::pair{"sdxl", 70}}) {
    const Network network = require_network(name).build({.batch = 2, .sampling = true});
    const bool added = network.find(Kind::conditioning) != nullptr;  // embedded by a product
    const ValueId x = network.x(), level = network.require(Kind::timesteps).value;
    const auto once = ops_not_reached(network, {x, level, network.require(Kind::sigma).value});
    EXPECT_EQ(once.at("gemm"), 2 * transformers + (added ? 1 : 0)) << name;
    EXPECT_EQ(once.contains("attention") || once.contains("conv2d"), false) << name;
    // Two layers of the embedding, and a projection of it in each of 22 residual blocks; of sdxl's 17.
    EXPECT_EQ(ops_not_reached(network, {x}).at("gemm"), 2 * transformers + (added ? 17 + 4 : 22 + 2)) << name;
  }
}

TEST(Dependence, OfOneKeyIsAVectorForEachBlock) {
  const Network network = require_network("svd").build({.batch = 2});
  const auto once = ops_not_reached(network, {network.x(), network.level().value});
  // Of 16 transformers two vectors, and the embedding of places, of two products each, and what undoes these; and what
  // is embedded.
  EXPECT_EQ(once.at("gemm"), 16 * (2 * 2 + 3) + 1);
}

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
