// A training step as one list: its gradients by differences of the loss, where it writes them, what of it lives when.
#include "networks/training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "kernels/core/fields.h"
#include "networks/lifetimes.h"
#include "tests/support/interpreter.h"
#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"

namespace noisefloor::networks {
namespace {

std::size_t index_of(const Graph& graph, std::string_view name) {
  const auto found = std::ranges::find(graph.nodes(), name, &Node::name);
  return static_cast<std::size_t>(found - graph.nodes().begin());
}

std::vector<double> normal_numbers(std::size_t count, double deviation, std::mt19937& random) {
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> numbers(count);
  for (double& number : numbers) number = normal(random);
  return numbers;
}

// Each parameter moved by itself, by so much. `tolerance`: of the gradient; a loss with kinks has a larger one.
void expect_gradients(const NetworkInfo& info, double step, double tolerance) {
  const Training training = build_training(info, {.batch = 3, .images = 5, .shifted = info.most_frames > 1 ? 0 : 0.5});
  const Graph& graph = training.network.graph;
  Interpreter run(graph);
  std::mt19937 random(3);
  run.set(training.images, normal_numbers(static_cast<std::size_t>(graph[training.images].elements()), 0.5, random));
  if (training.labels) run.set(*training.labels, {0, 1, 2, 1, 0});
  const auto deviation = [&](ValueId slice) {  // so that products keep the size of what they multiply
    return std::sqrt(1 / (1 + static_cast<double>(graph[slice].elements() / graph[slice].shape.front())));
  };
  const auto draw = [&](ValueId slice) {
    return normal_numbers(static_cast<std::size_t>(graph[slice].elements()), deviation(slice), random);
  };
  for (const ValueId slice : training.slices) {
    std::vector<double> numbers = draw(slice);
    if (graph[slice].shape.size() == 1 && graph[slice].name.ends_with("weight"))  // of a norm
      for (double& number : numbers) number = 1 + number / 4;
    run.set(slice, numbers);
  }
  const std::size_t loss = index_of(graph, "loss"), norm = index_of(graph, "gradients");
  run.run(0, norm);
  EXPECT_GT(run.get(training.losses.front(), 0), 0.1);
  const std::vector<double> gradients = run.all(training.gradients);
  for (const ValueId slice : training.slices) {
    const auto first = gradients.begin() + graph[slice].part->first;
    const std::vector<double> gradient(first, first + graph[slice].elements());
    double squares = 0;
    for (const double number : gradient) squares += number * number;
    constexpr double kNoise = 5e-6;  // of the loss, whose values are fp32
    const Gain gain = gain_along(run, slice, gradient, draw(slice), step, [&] {
      run.run(1, loss);  // of the same batch
      const auto results = run.results_of(graph.nodes()[loss]);
      return results.at(results.size() - 2).at(0);
    });
    EXPECT_LE(std::abs(gain.measured - gain.expected),
              kNoise + tolerance * 6 * step * deviation(slice) * std::sqrt(squares))
        << graph[slice].name << " gains " << gain.measured << ", expected " << gain.expected;
    EXPECT_GT(squares, 0) << graph[slice].name;
  }
}

TEST(Training, GradientsAreThoseOfTheLoss) {
  expect_gradients(small_trained(), 0x1p-5, 2e-4);
}
TEST(Training, GradientsOfAReluUNetAreThoseOfTheLoss) {
  expect_gradients(small_relu_unet(), 0x1p-9, 2e-2);
}
TEST(Training, GradientsOfAPoolingUNetAreThoseOfTheLoss) {
  expect_gradients(small_pooling_unet(), 0x1p-5, 2e-4);
}

TEST(Training, GradientsOfVideosAreThoseOfTheLoss) {
  expect_gradients(small_moving_unet(), 0x1p-5, 2e-4);
}

const std::vector<Training>& built() {
  static const std::vector<Training> kBuilt = [] {
    std::vector<Training> all;
    for (const auto& [name, batch, dtype] : {std::tuple("digits", 1, DType::fp32),
                                             {"digits", 512, DType::bf16},
                                             {"edm-cifar", 1, DType::bf16},
                                             {"edm-cifar", 64, DType::fp32},
                                             {"adm64", 1, DType::bf16},
                                             {"mnist-unet", 8, DType::bf16},
                                             {"moving-digits", 2, DType::bf16},
                                             {"unetcu", 2, DType::fp32}})
      all.push_back(build_training(require_network(name), {.batch = batch, .images = 10, .dtype = dtype}));
    return all;
  }();
  return kBuilt;
}

TEST(Training, EachGradientIsWrittenOnceToItsPlace) {
  for (const Training& training : built()) {
    const Graph& graph = training.network.graph;
    std::int64_t parameters = 0, end = 0;
    std::set<std::int64_t> places;
    for (const ValueId slice : training.slices) {
      const Value::Part& part = *graph[slice].part;
      EXPECT_EQ(part.of, training.parameters);
      EXPECT_EQ(part.first % kParameterStep, 0);
      EXPECT_GE(part.first, end) << graph[slice].name;
      end = part.first + graph[slice].elements();
      parameters += graph[slice].elements();
      places.insert(part.first);
    }
    for (const ValueId factor : training.factors) parameters += graph[factor].elements();
    EXPECT_EQ(parameters, training.network.info->parameters) << training.network.name();
    EXPECT_LE(end, training.elements());
    for (const Node& node : graph.nodes())
      for (const Node::Tensor& tensor : node.tensors())
        if (tensor.role == Role::out && graph.whole(tensor.value) == training.gradients) {
          EXPECT_EQ(places.erase(graph[tensor.value].part->first), 1u) << node.name;
        }
    EXPECT_TRUE(places.empty());
  }
}

// A kernel that began before the one that writes weights has ended must not read them.
TEST(Training, NothingThatIsTrainedIsConstant) {
  for (const Training& training : built())
    for (const Node& node : training.network.graph.nodes())
      EXPECT_EQ(weights_of(training.network.graph, node), 0u) << node.name;
}

// A gain near 1 would stand still in 16 bits for tens of steps.
TEST(Training, NormsReadTheirParametersUnrounded) {
  for (const Training& training : built()) {
    const Graph& graph = training.network.graph;
    for (const Node& node : graph.nodes())
      for (const Node::Tensor& tensor : node.tensors())
        if (node.op->name.starts_with("groupnorm") && (tensor.name == "gamma" || tensor.name == "beta")) {
          EXPECT_EQ(graph.whole(tensor.value), training.parameters) << node.name;
        }
  }
}

// Plans time what a step launches: a convolution's weights, also those turned for its gradient, are packed each time.
TEST(Training, ConvolutionsPrepareTheirWeightsAnew) {
  const auto expect = [](const Graph& graph, bool anew) {
    for (const CountedProblem& problem : count_problems(graph))
      if (problem.op->name.starts_with("conv") && !problem.op->name.ends_with("grad")) {
        EXPECT_EQ(problem.written_weights, anew) << problem.op->name << " " << problem.text;
      }
  };
  for (const Training& training : built()) {
    expect(training.network.graph, true);
    expect(training.network.info->build({.sampling = true}).graph, false);
  }
}

TEST(Training, ValuesLiveUntilTheirGradientsAndLieTight) {
  for (const Training& training : built()) {
    const Graph& graph = training.network.graph;
    std::set<ValueId> written;
    for (const Node& node : graph.nodes()) {
      for (const Node::Tensor& tensor : node.tensors())
        if (tensor.role != Role::out && graph[tensor.value].kind == Value::Kind::activation) {
          EXPECT_TRUE(written.contains(graph.whole(tensor.value))) << node.name << " reads " << tensor.name;
        }
      for (const Node::Tensor& tensor : node.tensors())
        if (tensor.role != Role::in) written.insert(graph.whole(tensor.value));
    }
    const auto lifetimes = activation_lifetimes(graph, training.network.output_values());
    std::size_t most = 0, all = 0;
    for (std::size_t step = 0; step < graph.nodes().size(); ++step) most = std::max(most, bytes_alive(lifetimes, step));
    for (const Lifetime& life : lifetimes) all += life.bytes;
    EXPECT_LE(place(lifetimes).bytes, most + most / 4);
    EXPECT_LT(most, all * 2 / 3);
  }
}

TEST(Training, RefusesWhatCannotBeTrained) {
  const auto refusal = [](const char* network, const TrainingOptions& options) {
    return refusal_of([&] { build_training(require_network(network), options); });
  };
  expect_parts(refusal("digits", {.dtype = DType::fp16}), {"fp16", "bf16", "fp32"});
  expect_parts(refusal("sd-vae", {}), {"sd-vae", "cannot be trained"});
  expect_parts(refusal("svd", {}), {"svd", "cannot be trained"});
  expect_parts(refusal("sd15", {}), {"sd15", "cannot be trained", "encoder_hidden_states"});
  expect_parts(refusal("digits", {.batch = std::int64_t{1} << 40}), {"digits", "takes 1 to"});
  // Of the backward pass alone: the sums over all pixels of a batch.
  expect_parts(refusal("mnist-unet", {.batch = 32767}), {"32767", "mnist-unet", "takes 1 to 16384", ".bias"});
  expect_parts(refusal("mnist-unet", {.batch = 131072, .devices = 2, .parts = 2}), {"131072", "takes 1 to 65536"});
}

}  // namespace
}  // namespace noisefloor::networks
