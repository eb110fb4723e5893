// Whole networks as problems: their text and sizes, tensors, cost, and what is refused.
#include "bench/pipeline/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "bench/sweep/suite.h"
#include "kernels/catalogue.h"
#include "tests/support/refusal.h"

namespace noisefloor {
namespace {

using pipeline::network_workload;

TEST(NetworkWorkload, PrintsWhatItParses) {
  const Workload& op = network_workload();
  EXPECT_EQ(op.print(op.parse("batch=32,name=adm64")), "name=adm64,batch=32");
  for (const char* wrong : {"name=adm64", "batch=1", "name=adm64,batch=0", "name=adm64,batch=1,h=2",
                            "name=adm64,batch=1,height=0", "name=adm64,batch=1,width=65544"})
    EXPECT_THROW(op.parse(wrong), InvalidInput) << wrong;
  expect_parts(refusal_of([&] { return op.parse("name=adm46,batch=1"); }),
               {"name", "adm46", "adm64", "edm-cifar", "digits"});
  EXPECT_EQ(refusal_of([&] { return op.parse("name=adm64,batch=1,height=60"); }),
            "problem: height 60: adm64 takes multiples of 8; the nearest are 56 and 64");
}

// Folders and plans that were recorded before there were sizes keep their keys.
TEST(NetworkWorkload, PrintsOnlySizesThatAreNotTheNetworksOwn) {
  const Workload& op = network_workload();
  const auto canonical = [&](const char* text) { return op.print(op.parse(text)); };
  EXPECT_EQ(canonical("name=adm64,batch=1,height=64,width=64,frames=1,tokens=0"), "name=adm64,batch=1");
  EXPECT_EQ(canonical("name=digits,batch=1,width=64,height=8"), "name=digits,batch=1,width=64");
  EXPECT_EQ(canonical("height=96,name=adm64,batch=2,width=40"), "name=adm64,batch=2,height=96,width=40");
  EXPECT_EQ(op.values(op.parse("name=edm-cifar,batch=1,width=64")).size(), 8u);
  std::string all;
  for (const KeyValue& pair : op.values(op.parse("name=edm-cifar,batch=1,width=64")))
    all += pair.key + pair.value + " ";
  EXPECT_EQ(all, "nameedm-cifar batch1 height32 width64 frames1 tokens0 training0 recompute0 ");
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
  const auto other =
      network_workload().tensors(network_workload().parse("name=digits,batch=2,height=24,width=40"), DType::bf16);
  EXPECT_STREQ(other[1].name, "sigma");
  for (const std::size_t image : {0u, 3u}) EXPECT_EQ(other[image].shape, (std::vector<std::int64_t>{2, 24, 40, 1}));
}

// tests/networks/inputs_test.cpp looks at the numbers.
TEST(NetworkWorkload, FillsLevelsAndLabels) {
  const AnyProblem problem = network_workload().parse("name=digits,batch=5");
  std::vector<float> levels(5), labels(5 * 10);
  network_workload().fill(problem, DType::fp32, 1, levels.data());
  network_workload().fill(problem, DType::fp32, 2, labels.data());
  EXPECT_EQ(std::set<float>(levels.begin(), levels.end()).size(), 5u);
  EXPECT_EQ(std::ranges::count(labels, 1.0f), 5);
}

// Every launch finds the same parameters: rates[0] is the learning rate.
TEST(NetworkWorkload, TrainsAtALearningRateOfZero) {
  const Workload& op = network_workload();
  const AnyProblem problem = op.parse("name=digits,batch=3,training=1");
  EXPECT_EQ(op.print(problem), "name=digits,batch=3,training=1");
  const auto specs = op.tensors(problem, DType::bf16);
  std::vector<std::string> names;
  for (const TensorSpec& spec : specs) names.emplace_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"images", "labels", "step", "rates", "loss", "norm", "gradients"}));
  EXPECT_EQ(specs.at(6).role, Role::inout);
  float rates[4], labels[3];
  op.fill(problem, DType::bf16, 3, rates);
  op.fill(problem, DType::bf16, 1, labels);
  EXPECT_EQ(rates[0], 0);
  for (const int i : {1, 2}) EXPECT_GT(rates[i], 1);
  EXPECT_EQ(labels[2], 4);  // of 10 classes
  // Backward is twice forward, but for the gradient of the image.
  const double forward = op.cost(op.parse("name=adm64,batch=1"), DType::bf16).flops;
  const double step = op.cost(op.parse("name=adm64,batch=1,training=1"), DType::bf16).flops;
  EXPECT_NEAR(step / forward, 3, 0.2);
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
}

}  // namespace
}  // namespace noisefloor
