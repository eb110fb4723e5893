// Training steps of digits on the GPU: the same as on the host, and the same bits whether launches overlap or not,
// and in a graph or not.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "bench/pipeline/executor.h"
#include "bench/pipeline/plan.h"
#include "bench/sweep/suite.h"
#include "networks/training.h"
#include "tests/support/first_gpu.h"
#include "tests/support/recorded_tensors.h"

namespace noisefloor::pipeline {
namespace {

constexpr int kImages = 20, kClasses = 10;

struct Steps {
  Steps(Platform& on, const TrainingOptions& options, const char* source)
      : platform(on),
        training(build_training(require_network("digits"), options)),
        executor(platform, training.network, RandomWeights(),
                 {platform, suite(), count_problems(training.network.graph), {.source = source}}) {
    std::vector<float> images(static_cast<std::size_t>(training.network.graph[training.images].elements()));
    for (std::size_t i = 0; i < images.size(); ++i) images[i] = std::sin(static_cast<float>(i));
    std::vector<float> labels(kImages);
    for (int i = 0; i < kImages; ++i) labels[static_cast<std::size_t>(i)] = static_cast<float>(i % kClasses);
    set(training.images, images);
    set(*training.labels, labels);
  }

  void set(ValueId id, const std::vector<float>& numbers) {
    platform.upload(executor.data(id), numbers.data(), numbers.size() * sizeof(float));
  }
  std::vector<float> get(ValueId id) {
    std::vector<float> numbers(static_cast<std::size_t>(training.network.graph[id].elements()));
    platform.download(numbers.data(), executor.data(id), numbers.size() * sizeof(float));
    return numbers;
  }
  std::vector<ValueId> states() const {
    return {training.gradients, training.parameters, training.m, training.v, *training.ema};
  }
  void tell(int step) {
    const auto corrected = [&](double beta) { return static_cast<float>(1 / (1 - std::pow(beta, step + 1))); };
    set(training.step, {static_cast<float>(step), 0});
    set(training.rates, {1e-3f, corrected(0.9), corrected(0.999), 0.5f});
  }

  Platform& platform;
  Training training;
  Executor executor;
};

// Every step from the states of the host, whose gradients the tests there hold to the oracles.
TEST(TrainingOnGpu, AStepIsTheHosts) {
  const TrainingOptions options{.batch = 8, .images = kImages, .clip = 1, .decay = 0.01};
  const auto platform = make_host_platform();
  Steps host(*platform, options, "own"), gpu(device(), options, "naive");
  for (int step = 0; step < 3; ++step) {
    host.tell(step);
    gpu.tell(step);
    for (const ValueId state : host.states()) gpu.set(state, host.get(state));
    throw_if_failed(host.executor.enqueue());
    throw_if_failed(gpu.executor.enqueue());
    device().synchronize();
    EXPECT_LE(distance(gpu.get(gpu.training.losses.front()), host.get(host.training.losses.front())), 1e-5);
    EXPECT_LE(distance(gpu.get(gpu.training.gradients), host.get(host.training.gradients)), 1e-4);
    for (const ValueId state : host.states()) EXPECT_LE(distance(gpu.get(state), host.get(state)), 1e-3);
  }
}

// Kernels that begin early must not read weights that the step before is still writing.
TEST(TrainingOnGpu, NeitherProgrammaticLaunchNorTheGraphChangesABit) {
  if (device().description().info.compute_capability < 90) GTEST_SKIP() << "needs sm_90";
  Steps gpu(device(), {.batch = 8, .images = kImages, .dtype = DType::bf16}, "own");
  const std::vector<float> first = gpu.get(gpu.training.parameters);
  const ValueId copies = *gpu.training.copies;
  std::vector<char> first_copies(gpu.training.network.graph[copies].bytes());
  device().download(first_copies.data(), gpu.executor.data(copies), first_copies.size());
  std::vector<std::vector<float>> after;
  for (const auto& [programmatic, recorded] : {std::pair(false, true), {true, true}, {true, true}, {false, false}}) {
    gpu.executor.set_programmatic(programmatic);
    for (const ValueId state : gpu.states()) gpu.set(state, std::vector<float>(first.size()));
    for (const ValueId state : {gpu.training.parameters, *gpu.training.ema}) gpu.set(state, first);
    device().upload(gpu.executor.data(copies), first_copies.data(), first_copies.size());
    gpu.tell(0);
    const auto recording = recorded ? device().record([&] { return gpu.executor.enqueue(); }) : nullptr;
    for (int step = 0; step < 20; ++step)  // back to back
      recorded ? recording->replay() : throw_if_failed(gpu.executor.enqueue());
    device().synchronize();
    after.push_back(gpu.get(gpu.training.parameters));
  }
  for (const float number : after.front()) ASSERT_TRUE(std::isfinite(number));
  EXPECT_GT(distance(after.front(), first), 1e-3);
  for (const std::vector<float>& found : after) EXPECT_EQ(found, after.front());
}

}  // namespace
}  // namespace noisefloor::pipeline
