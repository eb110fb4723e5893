// Skip connections that the nodes behind them read: which nodes fall away, and which must stay.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/conv2d/conv2d.h"
#include "tests/support/rewritten.h"

namespace noisefloor::networks {
namespace {

const Names kAll{"cat", "norm", "one", "conv"};

// A residual block behind a concatenation of 16 and 8 channels, with what a test changes of it.
struct Block {
  std::string one = "kernel=1,pad=0", more_of_conv = {};  // of the 1x1, and of the convolution
  bool rows = false;                                      // the 1x1 as a product of rows
  bool biases[2] = {true, true};                          // of the 1x1, and of the convolution
  std::function<void(Handmade&, ValueId concat, ValueId product)> also = [](auto&&...) {};
  Handmade made = {};

  Names fold(const Runs& runs = anything) {
    const std::string size = "n=2,h=4,w=4,";
    const ValueId x = made.input("x", {2, 4, 4, 16}), skip = made.input("skip", {2, 4, 4, 8});
    const ValueId concat =
        made.add("cat", "resample", "op=concat," + size + "channels=16,skip_channels=8", {{"x", x}, {"skip", skip}});
    const ValueId normed = made.add(
        "norm", "groupnorm", "n=2,hw=16,channels=24,groups=2,fusion=silu",
        {{"x", concat}, {"gamma", made.weight("norm.weight", {24})}, {"beta", made.weight("norm.bias", {24})}});
    const auto biased = [&](Bindings inputs, const char* name, std::size_t which) {
      if (biases[which]) inputs["bias"] = made.weight(std::string(name) + ".bias", {8});
      return inputs;
    };
    const auto bias_of = [&](std::size_t which) { return std::string(",bias=") + (biases[which] ? "1" : "0"); };
    const ValueId product =
        rows ? made.add("one", "gemm", "m=32,n=8,k=24" + bias_of(0),
                        biased({{"a", concat}, {"b", made.weight("one.weight", {8, 24})}}, "one", 0))
             : made.add("one", "conv2d", size + "cin=24,cout=8," + one + bias_of(0),
                        biased({{"x", concat}, {"w", made.weight("one.weight", {8, 1, 1, 24})}}, "one", 0));
    const ValueId y = made.add(
        "conv", "conv2d", size + "cin=24,cout=8,residual=1,gain=0.5" + bias_of(1) + more_of_conv,
        biased({{"x", normed}, {"w", made.weight("conv.weight", {8, 3, 3, 24})}, {"residual", product}}, "conv", 1));
    also(made, concat, product);
    made.give("y", y);
    fuse(made.network, {.fold_skips = true, .runs = runs});
    return names_of(made.network);
  }
  conv2d::Problem conv() const { return node_of(made.network, "conv").problem.as<conv2d::Problem>(); }
};

TEST(FoldSkips, TheOneByOneIsSummedAndTheConcatenationNeverWritten) {
  for (const bool rows : {false, true}) {
    Block block{.rows = rows};
    EXPECT_EQ(block.fold(), (Names{"norm", "conv"}));
    const Network& network = block.made.network;
    EXPECT_EQ(node_of(network, "norm").text, "n=2,hw=16,channels=24,groups=2,fusion=silu,skip_channels=8");
    const auto p = block.conv();
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
    EXPECT_EQ(network.outputs[0].value, node_of(network, "conv").value("y"));
  }
}

TEST(FoldSkips, OfOneBiasThereIsThatOne) {
  for (const auto& [of_one, of_conv] : {std::pair{true, false}, {false, true}, {false, false}}) {
    Block block{.biases = {of_one, of_conv}};
    EXPECT_EQ(block.fold(), (Names{"norm", "conv"}));
    EXPECT_EQ(block.conv().bias, of_one || of_conv);
    if (!block.conv().bias) continue;
    const WeightSource& bias = *tensor_of(block.made.network, "conv", "bias").source;
    EXPECT_EQ(std::pair(bias.name, bias.plus),
              std::pair(std::string(of_one ? "one.bias" : "conv.bias"), std::string()));
  }
}

TEST(FoldSkips, WhatIsNoPlainOneByOneOfItsOwnStays) {
  for (const char* one : {"kernel=1,pad=0,act=silu", "kernel=1,pad=0,gain=2"})
    EXPECT_EQ(Block{.one = one}.fold(), kAll) << one;
  EXPECT_EQ(Block{.more_of_conv = ",act=silu"}.fold(), kAll);  // the residual is behind it
  Block read_twice{.also = [](Handmade& made, ValueId, ValueId product) { made.give_silu("silu", product); }};
  EXPECT_EQ(read_twice.fold(), (Names{"cat", "norm", "one", "conv", "silu"}));
  Block given{.also = [](Handmade& made, ValueId, ValueId product) { made.give("also", product); }};
  EXPECT_EQ(given.fold(), kAll);
  // Somebody else reads the concatenation: it is the side as a whole.
  Block whole{.also = [](Handmade& made, ValueId concat, ValueId) { made.give_silu("silu", concat); }};
  EXPECT_EQ(whole.fold(), (Names{"cat", "norm", "conv", "silu"}));
  EXPECT_EQ(whole.conv().side, 24);
  EXPECT_EQ(tensor_of(whole.made.network, "conv", "side").name, "cat.y");
  Block returned{.also = [](Handmade& made, ValueId concat, ValueId) { made.give("also", concat); }};
  EXPECT_EQ(returned.fold(), (Names{"cat", "norm", "conv"}));
}

TEST(FoldSkips, WhatNothingHereRunsStays) {
  const auto without = [](const char* field) -> Runs {
    return [field = std::string(field)](const Op& op, const AnyProblem& problem, DType) {
      for (const KeyValue& pair : op.values(problem))
        if (pair.key == field && pair.value != "0") return false;
      return true;
    };
  };
  EXPECT_EQ(Block{}.fold(without("side")), kAll);
  EXPECT_EQ(Block{}.fold(without("side_skip")), (Names{"cat", "norm", "conv"}));
  EXPECT_EQ(Block{}.fold(without("skip_channels")), (Names{"cat", "norm", "conv"}));
  // By default what a variant of ours in PTX runs, which fp32 is not.
  EXPECT_EQ(Block{}.fold(runs_on_sm90a), kAll);
}

// A convolution of images of 8 channels, [n, high, wide], that adds an upsampled one of 2 x 4 x 6.
struct Upsampled {
  std::string more = {};
  std::int64_t n = 2, high = 8, wide = 12;
  bool read_elsewhere = false;
  Handmade made = {};

  Names fold(const Runs& runs = anything) {
    const ValueId small = made.input("small", {2, 4, 6, 8}), h = made.input("h", {n, high, wide, 8});
    const ValueId up = made.add("up", "resample", "op=nearest_up2,n=2,h=4,w=6,channels=8", {{"x", small}});
    const std::string problem = "n=" + std::to_string(n) + ",h=" + std::to_string(high) + ",w=" + std::to_string(wide) +
                                ",cin=8,cout=8,bias=0,residual=1" + more;
    made.give("y", made.add("conv", "conv2d", problem,
                            {{"x", h}, {"w", made.weight("conv.weight", {8, 3, 3, 8})}, {"residual", up}}));
    if (read_elsewhere) made.give("also", up);
    fuse(made.network, {.fold_skips = true, .runs = runs});
    return names_of(made.network);
  }
};

TEST(FoldSkips, AnUpsampledResidualIsRepeatedByItsConvolution) {
  for (const char* more : {"", ",act=silu,gain=0.5"}) {
    Upsampled block{.more = more};
    EXPECT_EQ(block.fold(), Names{"conv"}) << more;
    const auto& p = node_of(block.made.network, "conv").problem.as<conv2d::Problem>();
    EXPECT_TRUE(p.residual && p.residual_upsample);
    EXPECT_EQ(tensor_of(block.made.network, "conv", "residual").name, "small");
  }
}

TEST(FoldSkips, AnUpsampledResidualStaysWhereItCannotBeRepeated) {
  const Names both{"up", "conv"};
  EXPECT_EQ((Upsampled{.high = 4, .wide = 24}.fold()), both);  // as many elements are other pixels
  EXPECT_EQ((Upsampled{.n = 1, .high = 16}.fold()), both);
  EXPECT_EQ((Upsampled{.read_elsewhere = true}.fold()), both);
  EXPECT_EQ(Upsampled{}.fold(nothing), both);
}

}  // namespace
}  // namespace noisefloor::networks
