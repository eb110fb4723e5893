// Images that are halved behind a norm: which averages fall away, and which must stay.
#include "networks/halve_in_norms.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/groupnorm/groupnorm.h"
#include "networks/fuse_norms.h"

namespace noisefloor::networks {
namespace {

using Names = std::vector<std::string>;

bool whatever_it_is(const Op&, const AnyProblem&, DType) {
  return true;
}

Names names_in(const Graph& graph) {
  Names names;
  for (const Node& node : graph.nodes()) names.push_back(node.name);
  return names;
}

// The beginning of a residual block that halves an image of 4x8: a norm, the average of what it writes, and that of x.
struct Down {
  std::string norm = "n=2,hw=32,channels=16,groups=2,fusion=silu";
  std::string of_y = "op=average_down2,n=2,h=4,w=8,channels=16", of_x = of_y;
  bool x_first = false;  // the average of x stands in front of the norm
  std::function<void(Network&, ValueId normed)> also = [](auto&&...) {};
  Network network = {};

  ValueId add(const std::string& name, const char* op, const std::string& problem,
              std::map<std::string, ValueId> inputs) {
    return network.graph.add(name, op, problem, DType::fp32, inputs).at(0);
  }
  void give(const char* name, ValueId value) {
    network.outputs.push_back({name, NetworkTensor::Kind::image, value, network.graph[value].shape});
  }
  Names halve(const Runs& runs = whatever_it_is) {
    const std::vector<std::int64_t> shape{2, 4, 8, 16};
    const ValueId x = network.graph.input("x", shape, DType::fp32);
    network.inputs.push_back({"x", NetworkTensor::Kind::image, x, shape});
    const auto weight = [&](const char* name) { return network.graph.weight({name, {16}}, {16}, DType::fp32); };
    const auto skip = [&] { return of_x.empty() ? x : add("x_upd", "resample", of_x, {{"x", x}}); };
    const ValueId first = x_first ? skip() : x;
    const ValueId normed =
        add("norm", "groupnorm", norm, {{"x", x}, {"gamma", weight("gamma")}, {"beta", weight("beta")}});
    const ValueId y = add("h_upd", "resample", of_y, {{"x", normed}});
    const ValueId down = x_first ? first : skip();
    also(network, normed);
    give("y", add("after y", "elementwise", "op=silu,hw=1,channels=" + elements(y), {{"x", y}}));
    give("down", add("after x", "elementwise", "op=silu,hw=1,channels=" + elements(down), {{"x", down}}));
    halve_in_norms(network, runs);
    return names_in(network.graph);
  }
  std::string elements(ValueId value) const { return std::to_string(network.graph[value].elements()); }
};

TEST(HalveInNorms, OneNodeWritesBothAverages) {
  Down down;
  EXPECT_EQ(down.halve(), (Names{"norm", "after y", "after x"}));
  const auto& nodes = down.network.graph.nodes();
  EXPECT_EQ(nodes[0].text, "n=2,hw=32,channels=16,groups=2,fusion=silu,down_w=8");
  const auto outputs = nodes[0].values;  // x, gamma, beta, y, x_down
  EXPECT_EQ(nodes[1].values.front(), outputs.at(3));
  EXPECT_EQ(nodes[2].values.front(), outputs.at(4));
  EXPECT_EQ(down.network.graph[outputs.at(3)].elements(), 2 * 2 * 4 * 16);
}

TEST(HalveInNorms, WhatIsReadOtherwiseStays) {
  const Names all{"norm", "h_upd", "x_upd", "after y", "after x"};
  Down up{.of_x = "op=nearest_up2,n=2,h=4,w=8,channels=16"};
  EXPECT_EQ(up.halve(), all);
  Down another{.of_x = "op=average_down2,n=2,h=8,w=4,channels=16"};
  EXPECT_EQ(another.halve(), all);
  Down alone{.of_x = ""};
  EXPECT_EQ(alone.halve(), (Names{"norm", "h_upd", "after y", "after x"}));
  Down before{.x_first = true};
  EXPECT_EQ(before.halve(), (Names{"x_upd", "norm", "h_upd", "after y", "after x"}));
  Down stats{.norm = "n=2,hw=32,channels=16,groups=2,fusion=silu,stats=1"};
  EXPECT_EQ(stats.halve(), all);
  Down read{.also = [](Network& network, ValueId normed) {
    const ValueId more =
        network.graph.add("more", "elementwise", "op=silu,hw=1,channels=1024", DType::fp32, {{"x", normed}}).at(0);
    network.outputs.push_back({"more", NetworkTensor::Kind::image, more, {1024}});
  }};
  EXPECT_EQ(read.halve(), (Names{"norm", "h_upd", "x_upd", "more", "after y", "after x"}));
  Down given{.also = [](Network& network, ValueId normed) {
    network.outputs.push_back({"normed", NetworkTensor::Kind::image, normed, network.graph[normed].shape});
  }};
  EXPECT_EQ(given.halve(), all);
}

TEST(HalveInNorms, WhatNothingHereRunsStays) {
  const Names all{"norm", "h_upd", "x_upd", "after y", "after x"};
  Down refused;
  EXPECT_EQ(refused.halve([](const Op&, const AnyProblem&, DType) { return false; }), all);
  Down in_fp32;  // which no rung of ours in PTX has
  EXPECT_EQ(in_fp32.halve(runs_on_sm90a), all);
}

// Blocks that halve their image; each has two launches less.
TEST(HalveInNorms, OfNetworksThatHaveThem) {
  const std::map<std::string, int> wanted{{"adm64", 3}, {"edm-cifar", 2}, {"digits", 1}};
  for (const NetworkInfo& info : all_networks())
    for (const bool fuse : {false, true}) {
      const BuildOptions options{.dtype = DType::bf16};
      Network network = info.build(options);
      const std::size_t nodes = network.graph.nodes().size();
      halve_in_norms(network);
      if (fuse) fuse_norms(network, {.least_bytes = 0, .most_outputs = 1 << 20});  // which leaves them as they are
      int halved = 0;
      for (const Node& node : network.graph.nodes())
        halved += node.op == find_op("groupnorm") && node.problem.as<groupnorm::Problem>().down();
      const auto known = wanted.find(info.name);
      EXPECT_EQ(halved, known == wanted.end() ? 0 : known->second) << info.name;
      EXPECT_EQ(network.graph.nodes().size(), nodes - 2 * static_cast<std::size_t>(halved)) << info.name;
    }
  // As plans own and fastest build them.
  const Network folded = require_network("adm64").build({.batch = 32, .dtype = DType::bf16, .fold_skips = true});
  EXPECT_EQ(folded.graph.nodes().size(), 252u - 6);
}

}  // namespace
}  // namespace noisefloor::networks
