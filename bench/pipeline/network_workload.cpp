#include "bench/pipeline/network_workload.h"

#include <cmath>
#include <vector>

namespace noisefloor::pipeline {
namespace {

// Noise levels of the images, from one to the other in equal ratios: what denoisers see of the training data's own
// scale.
constexpr double kLowestSigma = 0.5, kHighestSigma = 2;
constexpr std::int64_t kMaximumBatch = 4096;

std::span<const char* const> names() {
  static const std::vector<const char*> all = [] {
    std::vector<const char*> list;
    for (const NetworkInfo& info : networks()) list.push_back(info.name);
    return list;
  }();
  return all;
}

struct Definition {
  static constexpr const char* name = "network";
  struct Problem {
    int name = 0;  // index into networks()
    std::int64_t batch = 1;
  };

  static std::span<const DType> dtypes() {
    static constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
    return kDTypes;
  }
  static void fields(Problem& problem, FieldVisitor& visitor) {
    visitor.choice("name", problem.name, names());
    visitor.integer("batch", problem.batch, 1, kMaximumBatch);
  }
  static void check(const Problem&) {}

  static Network build(const Problem& problem, DType dtype) {
    return networks()[static_cast<std::size_t>(problem.name)].build({.batch = problem.batch, .dtype = dtype});
  }

  static std::vector<TensorSpec> tensors(const Problem& problem, DType dtype) {
    const Network network = build(problem, dtype);
    const auto spec = [&](const char* name, ValueId id, Role role, Fill fill = {}) {
      const Value& value = network.graph[id];
      return TensorSpec{name, value.shape, value.dtype, role, fill};
    };
    const Fill by_op{.kind = Fill::Kind::op};
    TensorSpec output = spec("output", network.output, Role::out);
    output.shape = {network.batch, network.size, network.size, network.out_channels};
    return {spec("x", network.x, Role::in),
            network.timesteps ? spec("timesteps", *network.timesteps, Role::in, by_op)
                              : spec("sigma", *network.sigma, Role::in, by_op),
            spec("labels", network.labels, Role::in, by_op), output};
  }

  static void fill(const Problem& problem, DType dtype, std::size_t tensor, void* data) {
    const Network network = build(problem, dtype);
    for (std::int64_t image = 0; image < problem.batch; ++image) {
      const double part = (static_cast<double>(image) + 0.5) / static_cast<double>(problem.batch);
      if (tensor == 2) {
        const std::int64_t label = image * 7 % network.classes;
        for (std::int64_t c = 0; c < network.classes; ++c)
          store_element(dtype, data, image * network.classes + c, c == label ? 1 : 0);
      } else {
        store_element(
            DType::fp32, data, image,
            network.timesteps ? std::floor(1000 * part) : kLowestSigma * std::pow(kHighestSigma / kLowestSigma, part));
      }
    }
  }

  static Cost cost(const Problem& problem, DType dtype) {
    const Network network = build(problem, dtype);
    Cost total{0, 0, Pipe::tensor};
    for (const Node& node : network.graph.nodes()) total.flops += node.op->cost(node.problem, node.dtype).flops;
    for (const Value& value : network.graph.values())
      if (value.kind != Value::Kind::activation) total.bytes += static_cast<double>(value.bytes());
    total.bytes += static_cast<double>(network.graph[network.output].bytes());
    return total;
  }

  // The L2 norm is what is held: as for networks against PyTorch. A single element may be ten times as far off, which
  // of a million normal errors none is.
  static Tolerance tolerance(const Problem&, DType dtype) {
    const double l2 = dtype == DType::fp32 ? 1e-4 : 2e-2;
    return {10 * l2, l2};
  }
};

}  // namespace

const Workload& network_workload() {
  static const Workload workload = make_workload<Definition>();
  return workload;
}

Network build_network(const AnyProblem& problem, DType dtype) {
  return Definition::build(problem.as<Definition::Problem>(), dtype);
}

}  // namespace noisefloor::pipeline
