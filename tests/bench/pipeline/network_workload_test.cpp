// Whole networks as problems: their text and sizes, tensors, cost, and what is refused.
#include "bench/pipeline/network_workload.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"

namespace noisefloor {
namespace {

using pipeline::network_workload;

TEST(NetworkWorkload, IsTheLastThatASweepHas) {
  EXPECT_EQ(suite().entries().back().workload, &network_workload());
  EXPECT_EQ(suite().entries().size(), catalogue().size() + 1);
  EXPECT_EQ(find_op("network"), nullptr);
}

TEST(NetworkWorkload, PrintsWhatItParses) {
  const Workload& op = network_workload();
  EXPECT_EQ(op.print(op.parse("batch=32,name=adm64")), "name=adm64,batch=32");
  for (const char* wrong : {"name=adm64", "batch=1", "name=adm64,batch=0", "name=adm64,batch=1,h=2",
                            "name=adm64,batch=1,height=0", "name=adm64,batch=1,width=65544"})
    EXPECT_THROW(op.parse(wrong), InvalidInput) << wrong;
  try {
    op.parse("name=adm46,batch=1");
    FAIL();
  } catch (const InvalidInput& error) {
    for (const char* part : {"name", "adm46", "adm64", "edm-cifar", "digits"})
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " in " << error.what();
  }
}

// Folders and plans that were recorded before there were sizes keep their keys.
TEST(NetworkWorkload, PrintsOnlySizesThatAreNotTheNetworksOwn) {
  const Workload& op = network_workload();
  const auto canonical = [&](const char* text) { return op.print(op.parse(text)); };
  EXPECT_EQ(canonical("name=adm64,batch=1,height=64,width=64,frames=1,tokens=0"), "name=adm64,batch=1");
  EXPECT_EQ(canonical("name=digits,batch=1,width=64,height=8"), "name=digits,batch=1,width=64");
  EXPECT_EQ(canonical("height=96,name=adm64,batch=2,width=40"), "name=adm64,batch=2,height=96,width=40");
  EXPECT_EQ(op.values(op.parse("name=edm-cifar,batch=1,width=64")).size(), 6u);
  std::string all;
  for (const KeyValue& pair : op.values(op.parse("name=edm-cifar,batch=1,width=64")))
    all += pair.key + pair.value + " ";
  EXPECT_EQ(all, "nameedm-cifar batch1 height32 width64 frames1 tokens0 ");
}

TEST(NetworkWorkload, RefusesSizesThatANetworkDoesNotTake) {
  const std::pair<const char*, const char*> kWrong[] = {
      {"name=adm64,batch=1,height=60", "problem: height 60: adm64 takes multiples of 8; the nearest are 56 and 64"},
      {"name=digits,batch=1,width=1", "problem: width 1: digits takes multiples of 2; the nearest is 2"},
      {"name=adm64,batch=1,frames=2",
       "problem: frames 2: adm64 makes single images; networks with frames: moving-digits, svd, svd-vae"},
      {"name=digits,batch=1,tokens=77", "problem: tokens 77: digits takes no text; networks with tokens: sd15, sdxl"}};
  for (const auto& [text, says] : kWrong) {
    try {
      network_workload().parse(text);
      ADD_FAILURE() << text;
    } catch (const InvalidInput& error) {
      EXPECT_STREQ(error.what(), says);
    }
  }
}

TEST(NetworkWorkload, OfOtherSizesTakesAndGivesThem) {
  const AnyProblem problem = network_workload().parse("name=adm64,batch=2,height=24,width=40");
  const auto specs = network_workload().tensors(problem, DType::bf16);
  EXPECT_EQ(specs[0].shape, (std::vector<std::int64_t>{2, 24, 40, 3}));
  EXPECT_EQ(specs[1].shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(specs[3].shape, (std::vector<std::int64_t>{2, 24, 40, 6}));
}

TEST(NetworkWorkload, TakesImagesLevelsAndLabels) {
  const auto specs = network_workload().tensors(network_workload().parse("name=adm64,batch=2"), DType::bf16);
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(specs[0].shape, (std::vector<std::int64_t>{2, 64, 64, 3}));
  EXPECT_STREQ(specs[1].name, "timesteps");
  EXPECT_EQ(specs[2].shape, (std::vector<std::int64_t>{2, 1000}));
  EXPECT_EQ(specs[2].dtype, DType::bf16);
  EXPECT_EQ(specs[3].shape, (std::vector<std::int64_t>{2, 64, 64, 6}));
  EXPECT_EQ(specs[3].dtype, DType::fp32);
  EXPECT_EQ(specs[3].role, Role::out);
  EXPECT_STREQ(network_workload().tensors(network_workload().parse("name=digits,batch=2"), DType::bf16)[1].name,
               "sigma");
}

TEST(NetworkWorkload, FillsLevelsWithinRangeAndOneLabelAnImage) {
  for (const char* text : {"name=adm64,batch=5", "name=digits,batch=5"}) {
    const AnyProblem problem = network_workload().parse(text);
    const auto specs = network_workload().tensors(problem, DType::fp32);
    std::vector<float> levels(5), labels(static_cast<std::size_t>(specs[2].elements()));
    network_workload().fill(problem, DType::fp32, 1, levels.data());
    network_workload().fill(problem, DType::fp32, 2, labels.data());
    for (const float level : levels) {
      EXPECT_GT(level, 0) << text;
      EXPECT_LE(level, specs[1].name == std::string("sigma") ? 2 : 999) << text;
    }
    EXPECT_EQ(std::set<float>(levels.begin(), levels.end()).size(), 5u);
    const std::int64_t classes = specs[2].shape[1];
    for (std::int64_t image = 0; image < 5; ++image) {
      float sum = 0;
      for (std::int64_t c = 0; c < classes; ++c) sum += labels[static_cast<std::size_t>(image * classes + c)];
      EXPECT_EQ(sum, 1);
    }
  }
}

TEST(NetworkWorkload, AllowsMoreWhereBf16WasMeasuredToLeaveMore) {
  const auto l2 = [](const char* text, DType dtype) {
    return network_workload().tolerance(network_workload().parse(text), dtype).l2_error;
  };
  EXPECT_EQ(l2("name=sdxl,batch=1", DType::bf16), networks::require_network("sdxl").rounding);
  for (const char* text : {"name=sdxl,batch=1", "name=digits,batch=1"}) {
    EXPECT_EQ(l2(text, DType::fp16), 2e-2) << text;
    EXPECT_EQ(l2(text, DType::fp32), 1e-4) << text;
  }
}

TEST(NetworkWorkload, CostsItsNodesAndItsCompulsoryBytes) {
  const Workload& op = network_workload();
  const auto cost = [&](const char* text, DType dtype) { return op.cost(op.parse(text), dtype); };
  const Cost one = cost("name=digits,batch=1", DType::bf16), two = cost("name=digits,batch=2", DType::bf16);
  EXPECT_DOUBLE_EQ(two.flops, 2 * one.flops);
  EXPECT_EQ(one.pipe, Pipe::tensor);
  // An image brings x and the output (fp32, 8x8), a level and ten bf16 labels; the rest is weights.
  EXPECT_DOUBLE_EQ(two.bytes - one.bytes, 2 * 64 * 4 + 4 + 10 * 2);
  EXPECT_NEAR(one.bytes, 2 * 1'229'697, 2e4);
  // Dhariwal and Nichol's 64x64 network: about 104 billion multiply-adds a call.
  EXPECT_NEAR(cost("name=adm64,batch=1", DType::bf16).flops, 2 * 104e9, 0.03 * 208e9);
}

}  // namespace
}  // namespace noisefloor
