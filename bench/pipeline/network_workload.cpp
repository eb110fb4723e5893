#include "bench/pipeline/network_workload.h"

#include <algorithm>
#include <string>
#include <vector>

#include "networks/network.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::int64_t kMaximumBatch = 4096;
constexpr double kFp16Rounding = 2e-2;  // relative L2 error that fp16 may leave in a network's output

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
  }
  static void check(const Problem& problem) {
    try {
      (void)info(problem).resolved(problem.sizes);
    } catch (const InvalidInput& error) {
      throw InvalidInput(std::string("problem: ") + error.what());
    }
  }

  static Network build(const Problem& problem, DType dtype, bool fold_skips = false) {
    return info(problem).build(
        {.batch = problem.batch, .dtype = dtype, .fold_skips = fold_skips, .sizes = problem.sizes});
  }

  static std::vector<TensorSpec> tensors(const Problem& problem, DType dtype) {
    const Network network = build(problem, dtype);
    std::vector<TensorSpec> specs;
    for (const NetworkTensor& input : network.inputs)
      specs.push_back({input.name, input.shape, network.graph[input.value].dtype, Role::in,
                       drawn(input.kind) ? Fill{} : Fill{.kind = Fill::Kind::op}});
    for (const NetworkTensor& output : network.outputs)
      specs.push_back({output.name, output.shape, network.graph[output.value].dtype, Role::out, {}});
    return specs;
  }

  static void fill(const Problem& problem, DType dtype, std::size_t tensor, void* data) {
    const Network network = build(problem, dtype);
    const NetworkTensor& input = network.inputs.at(tensor);
    fill_for_timing(input, network.graph[input.value].dtype, data);
  }

  static Cost cost(const Problem& problem, DType dtype) {
    const Network network = build(problem, dtype);
    Cost total{0, 0, Pipe::tensor};
    for (const Node& node : network.graph.nodes()) total.flops += node.op->cost(node.problem, node.dtype).flops;
    for (const Value& value : network.graph.values())
      if (value.kind == Value::Kind::input || value.kind == Value::Kind::weight)
        total.bytes += static_cast<double>(value.bytes());
    for (const ValueId output : network.output_values())
      total.bytes += static_cast<double>(network.graph[output].bytes());
    return total;
  }

  // The L2 norm is what is held: as for networks against PyTorch. A single element may be ten times as far off, which
  // of a million normal errors none is.
  static Tolerance tolerance(const Problem& problem, DType dtype) {
    const double l2 = dtype == DType::fp32 ? 1e-4 : dtype == DType::bf16 ? info(problem).rounding : kFp16Rounding;
    return {10 * l2, l2};
  }
};

}  // namespace

const Workload& network_workload() {
  static const Workload workload = make_workload<Definition>();
  return workload;
}

Network build_network(const AnyProblem& problem, DType dtype, bool fold_skips) {
  return Definition::build(problem.as<Definition::Problem>(), dtype, fold_skips);
}

}  // namespace noisefloor::pipeline
