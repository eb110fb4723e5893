// Networks on the GPU: what programmatic dependent launch and recordings must not change. That they are right:
// case_runner_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "bench/counters/kernel_trace.h"
#include "bench/pipeline/breakdown.h"
#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/executor.h"
#include "bench/pipeline/sampling.h"
#include "bench/sweep/suite.h"
#include "tests/support/first_gpu.h"
#include "tests/support/recorded_tensors.h"

namespace noisefloor::pipeline {
namespace {

void set_inputs(Executor& executor) {
  const Network& network = executor.network();
  const Value& x = network.graph[network.x()];
  device().fill_normal(x.dtype, executor.data(network.x()), x.elements(), 0, 1, /*seed=*/99);
  const auto images = static_cast<std::size_t>(network.batch);
  std::vector<float> levels(images);
  for (std::size_t i = 0; i < images; ++i)
    levels[i] = network.level().kind == NetworkTensor::Kind::timesteps ? static_cast<float>((17 + 600 * i) % 1000)
                                                                       : 0.3f + 3.0f * static_cast<float>(i);
  device().upload(executor.data(network.level().value), levels.data(), levels.size() * sizeof(float));
  if (network.classes == 0) return;
  std::vector<int> labels(images);
  for (std::size_t i = 0; i < images; ++i)
    labels[i] = static_cast<int>((3 + 5 * i) % static_cast<std::size_t>(network.classes));
  executor.set_labels(labels);
}

std::vector<float> output_of(const Executor& executor) {
  const Network& network = executor.network();
  std::vector<float> numbers(static_cast<std::size_t>(network.graph[network.output()].elements()));
  device().download(numbers.data(), executor.data(network.output()), numbers.size() * sizeof(float));
  return numbers;
}

// NaN in what the last replay wrote, so that a replay that writes nothing is seen.
void poison_output(const Executor& executor) {
  const Network& network = executor.network();
  device().fill_bytes(executor.data(network.output()), 0xFF, network.graph[network.output()].bytes());
}

const std::filesystem::path kDigits = "bench/pipeline/weights/digits.safetensors";

// Digits under a plan, with its own weights.
struct Digits {
  explicit Digits(const BuildOptions& options, const char* source = "own")
      : network(require_network("digits").build(options)),
        plan(device(), suite(), count_problems(network.graph), {.source = source}),
        executor(device(), network, checkpoint, plan) {}
  Network network;
  Checkpoint checkpoint{kDigits};
  Plan plan;
  Executor executor;
};

TEST(PipelineOnGpu, ProgrammaticLaunchChangesNoBitOfARecordedCall) {
  if (device().description().info.compute_capability < 90) GTEST_SKIP() << "needs sm_90";
  for (const auto& [batch, folded] : {std::pair{1, false}, {1, true}, {8, false}, {8, true}, {64, true}}) {
    SCOPED_TRACE("batch " + std::to_string(batch) + (folded ? ", folded" : ""));
    Digits digits({.batch = batch, .fold_skips = folded});
    Executor& executor = digits.executor;
    set_inputs(executor);
    std::vector<std::vector<float>> outputs;
    for (const bool programmatic : {false, true}) {
      executor.set_programmatic(programmatic);
      ASSERT_EQ(executor.programmatic(), programmatic);
      const auto recording = device().record([&] { return executor.enqueue(); });
      for (int replay = 0; replay < 20; ++replay) {
        poison_output(executor);
        // Two replays back to back: the second starts while the arena still holds the first one's activations.
        recording->replay();
        recording->replay();
        device().synchronize();
        outputs.push_back(output_of(executor));
      }
    }
    for (const float value : outputs.front()) ASSERT_TRUE(std::isfinite(value));
    for (std::size_t i = 1; i < outputs.size(); ++i)
      EXPECT_EQ(outputs[i], outputs.front()) << "replay " << i % 20 << (i < 20 ? " without" : " with");
  }
}

TEST(PipelineOnGpu, ProgrammaticLaunchChangesNoBitOfASampledPicture) {
  if (device().description().info.compute_capability < 90) GTEST_SKIP() << "needs sm_90";
  for (const std::int64_t hoisted_levels : {0, 35}) {
    Digits digits({.batch = 16, .sampling = true, .hoisted_levels = hoisted_levels});
    Executor& executor = digits.executor;
    const std::vector<int> labels(16, 7);
    for (const auto solver : {sampler_step::Solver::edm_heun, sampler_step::Solver::dpmpp_2m}) {
      SamplingOptions options;
      options.solver = solver;
      options.churn = solver == sampler_step::Solver::edm_heun ? 10 : 0;
      Sampler sampler(device(), executor, options);
      executor.set_programmatic(false);
      const std::vector<float> without = sampler.run(labels, 0);
      executor.set_programmatic(true);
      for (int i = 0; i < 20; ++i) EXPECT_EQ(sampler.run(labels, 0), without) << "run " << i;
    }
  }
}

// Other kernels sum for other numbers of rows: the pictures are near, and those of wrong levels would not be.
TEST(PipelineOnGpu, HoistedLevelsDrawNearlyTheSame) {
  const std::vector<int> labels{1, 4, 7, 9};
  std::vector<std::vector<float>> pictures;
  for (const std::int64_t hoisted_levels : {0, 9}) {
    Digits digits({.batch = 4, .dtype = DType::fp32, .sampling = true, .hoisted_levels = hoisted_levels});
    Sampler sampler(device(), digits.executor, {.solver = sampler_step::Solver::edm_heun, .steps = 5});
    pictures.push_back(sampler.run(labels, 0));
  }
  EXPECT_LT(distance(pictures[1], pictures[0]), 1e-3);
}

// The stream must be out of its capture after a launch that throws, or fails: all that follows would be captured, too.
TEST(PipelineOnGpu, ALaunchThatThrowsEndsTheCapture) {
  EXPECT_THROW(device().record([]() -> Status { throw std::logic_error("in the middle"); }), std::logic_error);
  EXPECT_ANY_THROW(device().record([] { return failure(StatusCode::invalid_argument, "refused"); }));
  Buffer to(device(), sizeof(float)), from(device(), sizeof(float));
  const float number = 3;
  device().upload(from.data(), &number, sizeof number);
  device()
      .record([&] {
        device().copy(to.data(), from.data(), sizeof number);
        return success();
      })
      ->replay();
  device().synchronize();
  float found = 0;
  device().download(&found, to.data(), sizeof found);
  EXPECT_EQ(found, number);
}

// One recording replayed for every batch, or, with drawn noise, one for each: what a sampler of its own draws.
TEST(PipelineOnGpu, BatchesOfOneSamplerAreThoseOfManySamplers) {
  using sampler_step::Schedule, sampler_step::Solver;
  const SamplingOptions all[] = {{.solver = Solver::edm_heun, .steps = 5},
                                 {.solver = Solver::edm_euler, .steps = 4},
                                 {.solver = Solver::dpmpp_2m, .steps = 7},
                                 {.solver = Solver::pndm, .steps = 7},
                                 {.solver = Solver::edm_heun, .steps = 5, .churn = 10},
                                 {.solver = Solver::ddpm, .schedule = Schedule::linear, .steps = 5}};
  for (const std::int64_t hoisted_levels : {0, 9}) {
    Digits digits({.batch = 4, .sampling = true, .hoisted_levels = hoisted_levels});
    Executor& executor = digits.executor;
    for (const SamplingOptions& options : all) {
      Sampler sampler(device(), executor, options);
      for (int batch = 0; batch < 3; ++batch) {
        const std::vector<int> labels(4, batch + 3);
        Sampler fresh(device(), executor, options);
        EXPECT_EQ(sampler.run(labels, 4 * batch), fresh.run(labels, 4 * batch))
            << "solver " << static_cast<int>(options.solver) << " batch " << batch;
      }
    }
  }
}

TEST(BreakdownOnGpu, TellsWhoseEachKernelIsAndAddsUp) {
  for (const char* source : {"own", "baseline", "fastest"}) {
    SCOPED_TRACE(source);
    Digits digits({.batch = 8}, source);
    const Network& network = digits.network;
    Executor& executor = digits.executor;
    set_inputs(executor);
    const bool programmatic = executor.programmatic();
    Breakdown breakdown;
    try {
      breakdown = measure_breakdown(
          device(), executor, [&] { return executor.enqueue(); }, "digits");
    } catch (const CountersUnavailable& error) {
      GTEST_SKIP() << error.what();
    }
    EXPECT_EQ(executor.programmatic(), programmatic);
    EXPECT_EQ(executor.listener(), nullptr);
    ASSERT_EQ(breakdown.labels.size(), network.graph.nodes().size());
    for (std::size_t i = 0; i < breakdown.labels.size(); ++i) {
      EXPECT_EQ(breakdown.labels[i].node, network.graph.nodes()[i].name);
      EXPECT_GE(breakdown.kernels[i].size(), 1u) << breakdown.labels[i].node;
      EXPECT_GT(breakdown.alone.launches[i].kernel_us, 0) << breakdown.labels[i].node;
    }
    const Share all = total(breakdown);
    EXPECT_GT(breakdown.end_to_end_us, 0);
    // Medians launch by launch, so not to the last digit.
    EXPECT_NEAR((all.time_us + all.gap_us) / breakdown.together.span_us, 1, 0.1);
    // Tracing adds to every gap of these short kernels.
    EXPECT_GT(breakdown.together.span_us, 0.5 * breakdown.end_to_end_us);
    EXPECT_LT(breakdown.together.span_us, 4 * breakdown.end_to_end_us);
    std::printf("%s\n", breakdown_text(breakdown, 10).c_str());
    // The replay's records make a timeline, in which each node has a slice.
    const std::string timeline = timeline_json(breakdown, "GPU");
    for (const LaunchLabel& label : breakdown.labels)
      EXPECT_NE(timeline.find("\"name\":\"" + label.node + "\""), std::string::npos) << label.node;
    EXPECT_NE(timeline.find("\"activations\":"), std::string::npos);
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
