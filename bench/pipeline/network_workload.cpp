#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "bench/measure/fixture.h"
#include "bench/pipeline/executor.h"
#include "bench/pipeline/trainer.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::int64_t kMaximumBatch = 4096;
constexpr double kFp16Rounding = 2e-2;  // relative L2 error that fp16 may leave in a network's output
// Of what a network's output may be off, so many times that may a step's gradients be: they come back through all of
// it.
constexpr double kOfGradients = 3;
constexpr std::int64_t kMostCompared = std::int64_t{1} << 22;  // numbers of an output
constexpr std::int64_t kLabelStride = 7;                       // between the labels of neighbours

std::span<const char* const> names() {
  static const std::vector<const char*> all = [] {
    std::vector<const char*> list;
    for (const NetworkInfo& info : all_networks()) list.push_back(info.name);
    return list;
  }();
  return all;
}

struct Definition {
  static constexpr const char* name = "network";
  struct Problem {
    int name = 0;  // index into all_networks()
    std::int64_t batch = 1;
    Sizes sizes;
    bool training = false, recompute = false;
  };

  static std::span<const DType> dtypes() {
    static constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
    return kDTypes;
  }
  static const NetworkInfo& info(const Problem& problem) {
    return all_networks()[static_cast<std::size_t>(problem.name)];
  }
  // The network's own sizes are the defaults, so that its problems stay `name=adm64,batch=1`.
  static void fields(Problem& problem, FieldVisitor& visitor) {
    visitor.computes("one call of a whole network, with random weights");
    visitor.enumeration("name", "name of the network", problem.name, names());
    visitor.integer("batch", "images, or videos", problem.batch, 1, kMaximumBatch);
    const Sizes own = info(problem).own_sizes();
    for (const auto& [name, meaning, size, most] : size_fields())
      visitor.integer(name, meaning, problem.sizes.*size, std::min<std::int64_t>(1, own.*size), most, own.*size);
    visitor.flag("training", "a training step instead: forward, loss, backward, update", problem.training, false);
    visitor.flag("recompute", "the step makes norms and activations again in its backward pass", problem.recompute,
                 false);
  }
  static void check(const Problem& problem) {
    if (problem.recompute && !problem.training) throw InvalidInput("problem: recompute=1 needs training=1");
    try {
      (void)info(problem).resolved(problem.sizes);
      if (problem.training) (void)step(problem, DType::bf16);
    } catch (const InvalidInput& error) {
      throw InvalidInput(std::string("problem: ") + error.what());
    }
  }

  static Network build(const Problem& problem, DType dtype, bool fold_skips = false) {
    if (problem.training) return step(problem, dtype);
    return info(problem).build(
        {.batch = problem.batch, .dtype = dtype, .fold_skips = fold_skips, .sizes = problem.sizes});
  }

  // Each launch of a training step finds the parameters and their average as the first did: its learning rate is 0. The
  // moments go towards those of this gradient; neither loss nor gradients depend on them. `gradients` is inout for the
  // sake of what lies between two parameters, which nothing writes.
  static Network step(const Problem& problem, DType dtype) {
    const NetworkInfo& trained = info(problem);
    TrainingOptions options = options_of(recipe_or_usual(trained.name), problem.batch, dtype);
    options.batch = problem.batch;
    options.sizes = problem.sizes;
    options.recompute = problem.recompute;
    if (dtype == DType::fp16) options.dtype = DType::bf16;  // what its rows, which are refused, say of tensors and cost
    return build_training(trained, options).network;
  }

  static void fill_step(const Problem& problem, const NetworkTensor& input, std::span<float> numbers) {
    using Kind = NetworkTensor::Kind;
    const TrainingRecipe recipe = recipe_or_usual(info(problem).name);
    const std::array<float, 2> number = TrainingRecipe::number_of(1);
    std::array<float, 4> rates = recipe.rates_at(1);
    rates[0] = 0;
    if (input.kind == Kind::timesteps) std::ranges::copy(number, numbers.begin());
    if (input.kind == Kind::sigma) std::ranges::copy(rates, numbers.begin());
    if (input.kind != Kind::labels) return;
    for (std::size_t i = 0; i < numbers.size(); ++i)
      numbers[i] = static_cast<float>(static_cast<std::int64_t>(i) * kLabelStride % input.range);
  }

  static std::vector<TensorSpec> tensors(const Problem& problem, DType dtype) {
    const Network network = build(problem, dtype);
    std::vector<TensorSpec> specs;
    for (const NetworkTensor& input : network.inputs)
      specs.push_back({input.name, input.shape, network.graph[input.value].dtype, Role::in,
                       drawn(input.kind) ? Fill{} : Fill{.kind = Fill::Kind::op}});
    for (const NetworkTensor& output : network.outputs) {
      const Value& value = network.graph[output.value];
      const bool state = value.kind == Value::Kind::state;
      specs.push_back(
          {output.name, output.shape, value.dtype, state ? Role::inout : Role::out, state ? kFilledByOp : Fill{}});
    }
    return specs;
  }

  static void fill(const Problem& problem, DType dtype, std::size_t tensor, void* data) {
    const Network network = build(problem, dtype);
    if (tensor >= network.inputs.size()) {  // a state
      const NetworkTensor& state = network.outputs.at(tensor - network.inputs.size());
      std::memset(data, 0, network.graph[state.value].bytes());
      return;
    }
    const NetworkTensor& input = network.inputs[tensor];
    const Value& value = network.graph[input.value];
    if (problem.training)
      fill_step(problem, input, {static_cast<float*>(data), static_cast<std::size_t>(value.elements())});
    else
      fill_for_timing(input, value.dtype, data);
  }

  static Cost cost(const Problem& problem, DType dtype) {
    const Network network = build(problem, dtype);
    Cost total{0, 0, Pipe::tensor};
    for (const Node& node : network.graph.nodes()) total.flops += node.op->cost(node.problem, node.dtype).flops;
    for (const Value& value : network.graph.values()) {
      if (value.kind == Value::Kind::input || value.kind == Value::Kind::weight)
        total.bytes += static_cast<double>(value.bytes());
      if (value.kind == Value::Kind::state && !value.part)  // read and written
        total.bytes += 2 * static_cast<double>(value.bytes());
    }
    for (const ValueId output : network.output_values())
      if (network.graph[output].kind != Value::Kind::state)
        total.bytes += static_cast<double>(network.graph[output].bytes());
    return total;
  }

  // The L2 norm is what is held: as for networks against PyTorch. A single element may be ten times as far off, which
  // of a million normal errors none is; of gradients, whose layers differ in size, more.
  static Tolerance tolerance(const Problem& problem, DType dtype) {
    double l2 = dtype == DType::fp32 ? 1e-4 : dtype == DType::bf16 ? info(problem).rounding : kFp16Rounding;
    if (!problem.training) return {10 * l2, l2};
    return {30 * kOfGradients * l2, kOfGradients * l2};
  }
};

Network planned(const Suite& nodes, Platform& platform, const AnyProblem& problem, DType dtype,
                const Plan::Options& plan) {
  if (plan.pool || problem.as<Definition::Problem>().training) return build_network(problem, dtype);
  Network network = build_network(problem, dtype, folds_skips(nodes, platform, plan.source, dtype));
  fuse_norms_that_pay(network, platform, nodes, plan);
  return network;
}

class ReadyNetwork final : public Ready {
 public:
  ReadyNetwork(const Suite& nodes, Platform& platform, const AnyProblem& problem, DType dtype,
               const Plan::Options& plan)
      : held_to_itself_(platform.description().is_host && dtype == DType::fp32),
        network_(planned(nodes, platform, problem, dtype, plan)),
        plan_(platform, nodes, count_problems(network_.graph), plan),
        executor_(platform, network_, RandomWeights(), plan_) {}

  std::size_t workspace_bytes() const override { return 0; }
  bool many_kernels() const override { return true; }

  // Tensors in the order of network_workload().
  Status launch(std::span<void* const> pointers, const Scratch&, const LaunchContext& context) override {
    executor_.set_programmatic(context.programmatic_launch);
    std::size_t next = 0;
    for (const auto* tensors : {&network_.inputs, &network_.outputs})
      for (const NetworkTensor& tensor : *tensors) executor_.bind(tensor.value, pointers[next++]);
    return executor_.enqueue();
  }

  // "nodes: 231 ptx_sm90a, 40 tiled", most first. A host's naive variants in fp32 are these very ones.
  std::string description() const override {
    std::map<std::string, int> counts;
    for (std::size_t node = 0; node < network_.graph.nodes().size(); ++node)
      ++counts[executor_.implementation(node).name];
    std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
    std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
    std::string text = "nodes:";
    for (const auto& [name, count] : sorted)
      text += fmt::format("{} {} {}", text.back() == ':' ? "" : ",", count, name);
    if (held_to_itself_) text += "; compared with the same variants in fp32, so it cannot come out incorrect";
    return text;
  }

  std::map<CaseId, std::size_t> launches() const override {
    std::map<CaseId, std::size_t> counts;
    for (std::size_t node = 0; node < network_.graph.nodes().size(); ++node)
      ++counts[{problem_id(network_.graph.nodes()[node]), executor_.implementation(node).name}];
    return counts;
  }

  std::vector<std::pair<void*, std::size_t>> resident() const override { return executor_.resident(); }

  const Network& network() const { return network_; }
  Executor& executor() { return executor_; }

 private:
  bool held_to_itself_;
  Network network_;
  Plan plan_;
  Executor executor_;
};

class NetworkImplementation final : public Implementation {
 public:
  NetworkImplementation(const Suite& nodes, const char* plan, const char* row_kind, bool also_on_host)
      : nodes_(&nodes), plan_(plan) {
    name = std::string("plan_") + plan;
    kind = row_kind;
    on_host = also_on_host;
  }
  // A plan that can be made of nothing here is a problem that cannot be run, not a mistake of the caller's.
  std::unique_ptr<Ready> make(Platform& platform, const AnyProblem& problem, DType dtype,
                              KnownTimes& known) const override {
    try {
      if (problem.as<Definition::Problem>().training && dtype == DType::fp16)
        throw InvalidInput("dtype fp16: a training's is bf16 or fp32");
      build_network(problem, dtype).info->require(dtype);
      return std::make_unique<ReadyNetwork>(*nodes_, platform, problem, dtype,
                                            Plan::Options{.source = plan_, .known = &known});
    } catch (const InvalidInput& error) {
      throw LibraryRefused(error.what());
    }
  }

 private:
  const Suite* nodes_;
  const char* plan_;
};

// A network has no host function: its nodes have theirs. What it is held to is the same network, with the same weights
// and inputs, in fp32 by the tiled variants, which the nodes' own problems hold to their host functions.
class NetworkOracle final : public Oracle {
 public:
  explicit NetworkOracle(const Suite& nodes) : nodes_(&nodes) {}

  std::vector<Expectation> expect(Fixture& fixture, double) const override {
    Platform& platform = fixture.platform();
    ReadyNetwork exact(*nodes_, platform, fixture.problem(), DType::fp32, {.pool = Pool::tiled});
    const Network& network = exact.network();
    std::size_t tensor = 0;  // of the fixture
    for (const NetworkTensor& input : network.inputs) {
      const Value& value = network.graph[input.value];
      std::vector<char> numbers(value.bytes());
      for (std::int64_t e = 0; e < value.elements(); ++e)
        store_element(value.dtype, numbers.data(), e, fixture.host_tensors()[tensor][e]);
      platform.upload(exact.executor().data(input.value), numbers.data(), numbers.size());
      ++tensor;
    }
    throw_if_failed(exact.executor().enqueue());
    platform.synchronize();
    std::vector<Expectation> expectations;
    for (const ValueId output : network.output_values()) {
      std::vector<float> numbers(static_cast<std::size_t>(network.graph[output].elements()));
      platform.download(numbers.data(), exact.executor().data(output), network.graph[output].bytes());
      // Of the gradients of a large network every so manieth.
      const auto all = std::ssize(numbers), stride = (all - 1) / kMostCompared + 1;
      Expectation expected{tensor++, stride == 1, {}, {}};
      for (std::int64_t element = 0; element < all; element += stride) {
        expected.elements.push_back(element);
        expected.values.push_back(numbers[static_cast<std::size_t>(element)]);
      }
      expected.rms = root_mean_square(expected.values);
      // Random weights that make nothing, or overflow, would let anything pass.
      if (!(expected.rms > 0) || !std::isfinite(expected.rms))
        throw std::runtime_error(fmt::format("the network's fp32 output has the root mean square {}", expected.rms));
      expectations.push_back(std::move(expected));
    }
    return expectations;
  }

 private:
  const Suite* nodes_;
};

}  // namespace

const Workload& network_workload() {
  static const Workload workload = make_workload<Definition>();
  return workload;
}

Network build_network(const AnyProblem& problem, DType dtype, bool fold_skips) {
  return Definition::build(problem.as<Definition::Problem>(), dtype, fold_skips);
}

SuiteEntry network_entry(const Suite& nodes) {
  const auto plan = [&](const char* name, const char* kind, bool on_host) {
    return std::make_shared<NetworkImplementation>(nodes, name, kind, on_host);
  };
  // fastest is last: every time that its plan asks for is known by then.
  return {&network_workload(),
          {plan("own", "network", true), plan("baseline", "baseline", false), plan("fastest", "network", false)},
          std::make_shared<NetworkOracle>(nodes),
          /*whole_networks=*/true};
}

}  // namespace noisefloor::pipeline
