// Skip connections that the nodes behind them read: which nodes fall away, and which must stay.
#include "networks/fold_skips.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <set>
#include <string>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"
#include "networks/fuse_norms.h"

namespace noisefloor::networks {
namespace {

using Bindings = std::map<std::string, ValueId>;

bool anything(const Op&, const AnyProblem&, DType) {
  return true;
}

std::vector<std::string> names_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.push_back(node.name);
  return names;
}

const Node& node_of(const Network& network, const std::string& name) {
  for (const Node& node : network.graph.nodes())
    if (node.name == name) return node;
  throw std::out_of_range("no node " + name);
}

// The value that a node reads or writes under a tensor's name.
const Value& tensor_of(const Network& network, const std::string& node, const std::string& tensor) {
  const Node& of = node_of(network, node);
  const auto specs = of.op->tensors(of.problem, of.dtype);
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (specs[i].name == tensor) return network.graph[of.values[i]];
  throw std::out_of_range(node + " has no tensor " + tensor);
}

// A residual block behind a concatenation of 16 and 8 channels, with what a test changes of it.
struct Block {
  std::string one = "kernel=1,pad=0", more_of_conv = {};  // of the 1x1, and of the convolution
  bool rows = false;                                      // the 1x1 as a product of rows
  std::function<void(Network&, ValueId concat, ValueId product, ValueId y)> also = [](auto&&...) {};
  bool biases[2] = {true, true};  // of the 1x1, and of the convolution
  Network network = {};

  ValueId add(const std::string& name, const char* op, const std::string& problem, Bindings inputs) {
    return network.graph.add(name, op, problem, DType::fp32, inputs).at(0);
  }
  ValueId weight(const std::string& name, std::vector<std::int64_t> shape) {
    return network.graph.weight({name, shape}, shape, DType::fp32);
  }
  const Graph& fold(const Runs& runs = anything) {
    const std::string size = "n=2,h=4,w=4,";
    const auto pixels = [&](const char* name, std::int64_t channels) {
      const std::vector<std::int64_t> shape{2, 4, 4, channels};
      const ValueId value = network.graph.input(name, shape, DType::fp32);
      network.inputs.push_back({name, NetworkTensor::Kind::conditioning, value, shape});
      return value;
    };
    const ValueId x = pixels("x", 16), skip = pixels("skip", 8);
    const ValueId concat =
        add("cat", "resample", "op=concat," + size + "channels=16,skip_channels=8", {{"x", x}, {"skip", skip}});
    const ValueId normed =
        add("norm", "groupnorm", "n=2,hw=16,channels=24,groups=2,fusion=silu",
            {{"x", concat}, {"gamma", weight("norm.weight", {24})}, {"beta", weight("norm.bias", {24})}});
    const auto with_bias = [&](Bindings inputs, const char* name, std::size_t which) {
      if (biases[which]) inputs["bias"] = weight(std::string(name) + ".bias", {8});
      return inputs;
    };
    const auto bias_of = [&](std::size_t which) { return std::string(",bias=") + (biases[which] ? "1" : "0"); };
    const ValueId product = rows
                                ? add("one", "gemm", "m=32,n=8,k=24" + bias_of(0),
                                      with_bias({{"a", concat}, {"b", weight("one.weight", {8, 24})}}, "one", 0))
                                : add("one", "conv2d", size + "cin=24,cout=8," + one + bias_of(0),
                                      with_bias({{"x", concat}, {"w", weight("one.weight", {8, 1, 1, 24})}}, "one", 0));
    const ValueId y =
        add("conv", "conv2d", size + "cin=24,cout=8,residual=1,gain=0.5" + bias_of(1) + more_of_conv,
            with_bias({{"x", normed}, {"w", weight("conv.weight", {8, 3, 3, 24})}, {"residual", product}}, "conv", 1));
    also(network, concat, product, y);
    network.outputs.push_back({"y", NetworkTensor::Kind::image, y, network.graph[y].shape});
    fold_skips(network, runs);
    return network.graph;
  }
};

using Names = std::vector<std::string>;

TEST(FoldSkips, TheOneByOneIsSummedAndTheConcatenationNeverWritten) {
  for (const bool rows : {false, true}) {
    Block block{.rows = rows};
    EXPECT_EQ(names_of(block.fold()), (Names{"norm", "conv"}));
    const Network& network = block.network;
    EXPECT_EQ(node_of(network, "norm").text, "n=2,hw=16,channels=24,groups=2,fusion=silu,skip_channels=8");
    const auto p = node_of(network, "conv").problem.as<conv2d::Problem>();
    EXPECT_EQ(p.side, 16);
    EXPECT_EQ(p.side_skip, 8);
    EXPECT_EQ(p.gain, 0.5);
    EXPECT_FALSE(p.residual);
    for (const auto& [node, first] : {std::pair{"norm", "x"}, std::pair{"conv", "side"}})
      EXPECT_EQ(tensor_of(network, node, first).name, "x");
    for (const auto& [node, second] : {std::pair{"norm", "skip"}, std::pair{"conv", "side_skip"}})
      EXPECT_EQ(tensor_of(network, node, second).name, "skip");
    EXPECT_EQ(tensor_of(network, "conv", "w_side").source->name, "one.weight");
    const WeightSource& bias = *tensor_of(network, "conv", "bias").source;
    EXPECT_EQ(std::pair(bias.name, bias.plus), std::pair(std::string("conv.bias"), std::string("one.bias")));
    EXPECT_EQ(network.outputs[0].value, node_of(network, "conv").values.back());
  }
}

TEST(FoldSkips, OfOneBiasThereIsThatOne) {
  for (const auto& [of_one, of_conv] : {std::pair{true, false}, {false, true}, {false, false}}) {
    Block block{.biases = {of_one, of_conv}};
    EXPECT_EQ(names_of(block.fold()), (Names{"norm", "conv"}));
    const auto p = node_of(block.network, "conv").problem.as<conv2d::Problem>();
    EXPECT_EQ(p.bias, of_one || of_conv);
    if (!p.bias) continue;
    const WeightSource& bias = *tensor_of(block.network, "conv", "bias").source;
    EXPECT_EQ(std::pair(bias.name, bias.plus),
              std::pair(std::string(of_one ? "one.bias" : "conv.bias"), std::string()));
  }
}

TEST(FoldSkips, WhatIsNoPlainOneByOneOfItsOwnStays) {
  const Names all{"cat", "norm", "one", "conv"};
  for (const char* one : {"kernel=1,pad=0,act=silu", "kernel=1,pad=0,gain=2"})
    EXPECT_EQ(names_of(Block{.one = one}.fold()), all) << one;
  EXPECT_EQ(names_of(Block{.more_of_conv = ",act=silu"}.fold()), all);  // the residual is behind it
  const auto silu = [](Network& network, ValueId value) {
    const std::int64_t elements = network.graph[value].elements();
    const ValueId read = network.graph
                             .add("silu", "elementwise", "op=silu,hw=1,channels=" + std::to_string(elements),
                                  DType::fp32, {{"x", value}})
                             .at(0);
    network.outputs.push_back({"also", NetworkTensor::Kind::image, read, {elements}});
  };
  Block read_twice{.also = [&](Network& network, ValueId, ValueId product, ValueId) { silu(network, product); }};
  EXPECT_EQ(names_of(read_twice.fold()), (Names{"cat", "norm", "one", "conv", "silu"}));
  Block given{.also = [](Network& network, ValueId, ValueId product, ValueId) {
    network.outputs.push_back({"also", NetworkTensor::Kind::image, product, network.graph[product].shape});
  }};
  EXPECT_EQ(names_of(given.fold()), all);
  // Somebody else reads the concatenation: it is the side as a whole.
  Block whole{.also = [&](Network& network, ValueId concat, ValueId, ValueId) { silu(network, concat); }};
  EXPECT_EQ(names_of(whole.fold()), (Names{"cat", "norm", "conv", "silu"}));
  EXPECT_EQ(node_of(whole.network, "conv").problem.as<conv2d::Problem>().side, 24);
  EXPECT_EQ(tensor_of(whole.network, "conv", "side").name, "cat.y");
  Block returned{.also = [](Network& network, ValueId concat, ValueId, ValueId) {
    network.outputs.push_back({"also", NetworkTensor::Kind::image, concat, network.graph[concat].shape});
  }};
  EXPECT_EQ(names_of(returned.fold()), (Names{"cat", "norm", "conv"}));
}

TEST(FoldSkips, WhatNothingHereRunsStays) {
  const auto without = [](const char* field) -> Runs {
    return [field = std::string(field)](const Op& op, const AnyProblem& problem, DType) {
      for (const KeyValue& pair : op.values(problem))
        if (pair.key == field && pair.value != "0") return false;
      return true;
    };
  };
  EXPECT_EQ(names_of(Block{}.fold(without("side"))), (Names{"cat", "norm", "one", "conv"}));
  EXPECT_EQ(names_of(Block{}.fold(without("side_skip"))), (Names{"cat", "norm", "conv"}));
  EXPECT_EQ(names_of(Block{}.fold(without("skip_channels"))), (Names{"cat", "norm", "conv"}));
  // By default what a rung of ours in PTX runs, which fp32 is not.
  Block block;
  EXPECT_EQ(names_of(block.fold(runs_on_sm90a)), (Names{"cat", "norm", "one", "conv"}));
}

// ---- networks

struct Folded {
  int products = 0, resamplings = 0, launches = 0;  // resamplings: concatenations and upsamples
  friend bool operator==(const Folded&, const Folded&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Folded& f) {
    return out << f.products << ", " << f.resamplings << ", " << f.launches;
  }
};
Folded folded(const char* name, const Runs& runs, std::int64_t batch = 1) {
  const BuildOptions options{.batch = batch, .dtype = DType::bf16};
  const Network plain = require_network(name).build(options);
  Network network = require_network(name).build(options);
  fold_skips(network, runs);
  const auto counts = [](const Graph& graph) {
    std::map<std::string, int> of;
    for (const Node& node : graph.nodes()) ++of[node.op->name];
    return of;
  };
  auto before = counts(plain.graph), after = counts(network.graph);
  Folded result{.launches = static_cast<int>(network.graph.nodes().size())};
  result.resamplings = before["resample"] - after["resample"];
  result.products = before["conv2d"] + before["gemm"] - after["conv2d"] - after["gemm"];
  EXPECT_EQ(result.launches + result.products + result.resamplings, static_cast<int>(plain.graph.nodes().size()));
  return result;
}

// 1x1 layers, concatenations and upsamples that fall away, and launches that are left.
TEST(FoldSkips, OfNetworksThatHaveThem) {
  const std::map<std::string, Folded> wanted{
      {"adm64", {19, 19, 249}}, {"edm-cifar", {20, 15, 174}}, {"digits", {6, 4, 67}}, {"moving-digits", {4, 2, 89}},
      {"sd15", {14, 12, 330}},  {"sdxl", {11, 9, 891}},       {"svd", {14, 12, 622}}, {"sd-vae", {2, 0, 69}},
      {"sdxl-vae", {2, 0, 69}}, {"svd-vae", {2, 0, 125}}};
  for (const NetworkInfo& info : all_networks()) {
    const Folded all = folded(info.name, anything);  // which holds whatever the network is
    const auto known = wanted.find(info.name);
    if (known != wanted.end()) {
      EXPECT_EQ(all, known->second) << info.name;
    }
  }
  EXPECT_EQ(folded("adm64", anything, 32), (Folded{19, 19, 252}));
  for (const auto& [name, all] : wanted) EXPECT_EQ(folded(name.c_str(), runs_on_sm90a), all) << name;
}

TEST(FoldSkips, ReadTheSameTensorsOfACheckpoint) {
  for (const NetworkInfo& info : all_networks()) {
    std::map<std::string, std::vector<std::int64_t>> files[2];
    for (const bool fold : {false, true}) {
      Network network = info.build({});
      if (fold) fold_skips(network, anything);
      if (fold) fuse_norms(network, {.least_bytes = 0, .most_outputs = 1 << 20});  // which copies the graph
      for (const Value& value : network.graph.values())
        if (value.source)
          for (const auto& [name, rows] : value.source->tensors()) {
            auto shape = value.source->file;
            shape.front() = rows;
            files[fold][name] = shape;
          }
    }
    EXPECT_EQ(files[0], files[1]) << info.name;
  }
}

// A convolution of images of 8 channels, [n, high, wide] as `size` says, that adds an upsampled one of 2 x 4 x 6;
// `also` may read that image, too.
struct Size {
  std::int64_t n = 2, high = 8, wide = 12;
};
Network upsampled_residual(const std::string& more, const Size& size = {},
                           const std::function<void(Network&, ValueId upsampled)>& also = {}) {
  Network network;
  Graph& graph = network.graph;
  const auto& [n, high, wide] = size;
  const ValueId small = network.take("small", NetworkTensor::Kind::image, {2, 4, 6, 8}, DType::fp32);
  const ValueId h = network.take("h", NetworkTensor::Kind::image, {n, high, wide, 8}, DType::fp32);
  const ValueId up =
      graph.add("up", "resample", "op=nearest_up2,n=2,h=4,w=6,channels=8", DType::fp32, {{"x", small}}).at(0);
  const ValueId w = graph.weight({"conv.weight", {8, 8, 3, 3}}, {8, 3, 3, 8}, DType::fp32);
  const std::string problem = "n=" + std::to_string(n) + ",h=" + std::to_string(high) + ",w=" + std::to_string(wide) +
                              ",cin=8,cout=8,bias=0,residual=1" + more;
  const ValueId y = graph.add("conv", "conv2d", problem, DType::fp32, {{"x", h}, {"w", w}, {"residual", up}}).at(0);
  if (also) also(network, up);
  network.give("output", y, {n, high, wide, 8});
  return network;
}

TEST(FoldSkips, AnUpsampledResidualIsRepeatedByItsConvolution) {
  for (const char* more : {"", ",act=silu,gain=0.5"}) {
    Network network = upsampled_residual(more);
    fold_skips(network, anything);
    EXPECT_EQ(names_of(network.graph), std::vector<std::string>{"conv"}) << more;
    const auto& p = node_of(network, "conv").problem.as<conv2d::Problem>();
    EXPECT_TRUE(p.residual && p.residual_upsample);
    EXPECT_EQ(tensor_of(network, "conv", "residual").shape, (std::vector<std::int64_t>{2, 4, 6, 8}));
  }
}

// As many elements in another shape are other pixels.
TEST(FoldSkips, AnUpsampledResidualOfAnotherShapeStays) {
  for (const Size& size : {Size{2, 4, 24}, Size{1, 16, 12}}) {
    Network network = upsampled_residual("", size);
    fold_skips(network, anything);
    EXPECT_EQ(names_of(network.graph).size(), 2u);
  }
}

TEST(FoldSkips, AnUpsampledResidualStaysWhereItIsReadElsewhereOrNoRungRepeatsIt) {
  Network read = upsampled_residual("", {}, [](Network& network, ValueId up) {
    network.give("also", up, {2, 8, 12, 8});
  });
  fold_skips(read, anything);
  EXPECT_EQ(names_of(read.graph).size(), 2u);
  Network refused = upsampled_residual("");
  fold_skips(refused, [](const Op&, const AnyProblem&, DType) { return false; });
  EXPECT_EQ(names_of(refused.graph).size(), 2u);
}

}  // namespace
}  // namespace noisefloor::networks
