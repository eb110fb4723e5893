// What a training step has beside its network, on a device, where the op's own tolerance would let more pass.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "networks/network.h"
#include "tests/support/catalogue_cases.h"

namespace noisefloor {
namespace {

// Of every variant that runs here: calls judge(output's name, its values, the oracle's).
template <class Judge>
void for_each_output(const char* op, const std::string& text, DType dtype, const Judge& judge) {
  const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  const SuiteEntry& entry = *suite().find(op);
  const AnyProblem problem = entry.workload->parse(text);
  int ran = 0;
  for (const ImplementationPtr& variant : entry.implementations) {
    if (!variant->own() || !variant->runs_on_platform(false) || !cannot_run_on(*platform, *variant).empty() ||
        !variant->can_run(problem, dtype))
      continue;
    SCOPED_TRACE(text + " " + variant->name);
    Fixture fixture(*platform, entry, problem, dtype, 1);
    BoundCase bound(fixture, *variant);
    fixture.reset_outputs();
    throw_if_failed(bound.launch()());
    platform->synchronize();
    const auto inputs = fixture.host_tensors();
    for (std::size_t i = 0; i < fixture.specs().size(); ++i) {
      const TensorSpec& spec = fixture.specs()[i];
      if (spec.role == Role::in) continue;
      std::vector<char> bytes(spec.bytes());
      platform->download(bytes.data(), fixture.pointers()[i], bytes.size());
      std::vector<std::int64_t> elements(static_cast<std::size_t>(spec.elements()));
      std::iota(elements.begin(), elements.end(), 0);
      std::vector<double> here(elements.size()), oracle(elements.size());
      for (const std::int64_t e : elements)
        here[static_cast<std::size_t>(e)] = load_element(spec.dtype, bytes.data(), e);
      find_op(op)->reference(problem, dtype, inputs, i, elements, oracle);
      judge(std::string(spec.name), here, oracle);
    }
    ++ran;
  }
  EXPECT_GE(ran, 2) << "naive and tiled";
}

TEST(TrainingStepOnAGpu, MastersAreAsExactInRowsOf16BitsAsInFp32) {
  for (const DType dtype : {DType::bf16, DType::fp16})
    for_each_output("adamw", "elements=100008,decay=0.05,ema=1,copy=1", dtype,
                    [](const std::string& name, const std::vector<double>& here, const std::vector<double>& oracle) {
                      if (name == "copy") return;
                      for (std::size_t i = 0; i < here.size(); ++i)
                        ASSERT_NEAR(here[i], oracle[i], 1e-6 * (1 + std::abs(oracle[i]))) << name << i;
                    });
}

TEST(TrainingStepOnAGpu, WhatABatchDecidesIsTheHostsToTheBit) {
  const std::string more =
      "h=8,w=12,channels=3,classes=10,dataset=500,seed=3,first=4294967000,shifted=0.5,flipped=0.5,";
  for (const char* level : {"level=ddpm", "level=ddpm,schedule=cosine", "level=edm"})
    for_each_output("training_batch", more + "batch=700,unlabelled=0.3," + level, DType::bf16,
                    [&](const std::string& name, const std::vector<double>& here, const std::vector<double>& oracle) {
                      const bool decided = name == "x0" || name == "one_hot" || name == "level";
                      if (!decided) return;
                      if (name == "level" && level == std::string("level=edm")) {
                        for (std::size_t i = 0; i < here.size(); ++i)
                          ASSERT_NEAR(here[i], oracle[i], 1e-6 * oracle[i]) << i;
                      } else {
                        EXPECT_EQ(here, oracle) << name;
                      }
                    });
}

// A step's sums do not depend on what else a device does: the same bits, launch after launch.
TEST(TrainingStepOnAGpu, SumsHaveTheSameBitsEachTime) {
  for (const auto& [op, text] :
       {std::pair{"mse_loss", "batch=64,elements=3072,weight=edm"}, {"grad_norm", "elements=5000000,clip=1"}}) {
    std::vector<std::vector<double>> seen;
    for (int round = 0; round < 4; ++round)
      for_each_output(op, text, DType::fp32,
                      [&](const std::string& name, const std::vector<double>& here, const std::vector<double>&) {
                        if (name == "loss" || name == "norm") seen.push_back(here);
                      });
    const std::size_t variants = seen.size() / 4;
    for (std::size_t i = variants; i < seen.size(); ++i) EXPECT_EQ(seen[i], seen[i % variants]) << op;
  }
}

// cuDNN's transposed convolution turns its weights, which a step changes: within the recording, without waiting.
TEST(TrainingStepOnAGpu, CudnnsTransposedConvolutionReadsWeightsThatChange) {
  if (suite().find("conv_transpose2d")->find("cudnn") == nullptr) GTEST_SKIP() << "this build has no cuDNN";
  const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  networks::Network network;
  network.info = &networks::require_network("mnist-unet");
  networks::Graph& graph = network.graph;
  const auto x = graph.input("x", {4, 8, 8, 64}, DType::bf16);
  const auto w = graph.state("w", {32, 2, 2, 64}, DType::bf16), bias = graph.state("bias", {32}, DType::bf16);
  const auto y = graph
                     .add("up", "conv_transpose2d", "n=4,h=8,w=8,cin=64,cout=32,kernel=2", DType::bf16,
                          {{"x", x}, {"w", w}, {"bias", bias}})
                     .at(0);
  network.give("y", y, graph[y].shape);
  std::vector<std::vector<double>> seen;
  for (const char* variant : {"naive", "cudnn"}) {
    const pipeline::PlanEntries entries{{pipeline::problem_id(graph.nodes().front()), variant}};
    const pipeline::Plan plan(*platform, suite(), count_problems(graph), {.entries = &entries});
    pipeline::Executor executor(*platform, network, pipeline::RandomWeights(), plan);
    const auto recording = platform->record([&] { return executor.enqueue(); });
    for (int round = 1; round <= 2; ++round) {
      for (const auto id : {x, w}) {
        std::vector<char> bytes(graph[id].bytes());
        for (std::int64_t i = 0; i < graph[id].elements(); ++i)
          store_element(DType::bf16, bytes.data(), i, std::sin(static_cast<double>(i * round)) / 8);
        platform->upload(executor.data(id), bytes.data(), bytes.size());
      }
      recording->replay();
      platform->synchronize();
      std::vector<char> bytes(graph[y].bytes());
      platform->download(bytes.data(), executor.data(y), bytes.size());
      seen.emplace_back();
      for (std::int64_t i = 0; i < graph[y].elements(); ++i)
        seen.back().push_back(load_element(DType::bf16, bytes.data(), i));
    }
  }
  ASSERT_NE(seen[0], seen[1]);
  for (int round = 0; round < 2; ++round)
    for (std::size_t i = 0; i < seen[0].size(); ++i) ASSERT_NEAR(seen[2 + round][i], seen[round][i], 1e-2) << i;
}

}  // namespace
}  // namespace noisefloor
