// sampler_step as one cuDNN pointwise graph: the linear form of kernels/sampler_step/coefficients.h, terms whose
// coefficient is 0 left out, coefficients passed by value (ours read them from device memory). Arithmetic is fp32, as
// the op asks. Noise drawn inside is refused: it is a function of seed, image and element that no operation of cuDNN
// computes.

#include <cstddef>
#include <numeric>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_graph.h"
#include "baselines/cudnn_run.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::cudnn {
namespace {

using sampler_step::Noise;
using sampler_step::Problem;
using Row = sampler_step::CoefficientRow<double>;

constexpr std::int64_t kVectorBytes = 16;  // cudnn-frontend describes tensors as aligned to 16 bytes
constexpr std::int64_t kRowElements = 4096;
constexpr std::int64_t kMaxElements = (std::int64_t{1} << 31) - 1;

Support can_run(const AnyProblem& any, DType dtype) {
  const auto& problem = any.as<Problem>();
  if (problem.noise == Noise::drawn) return unsupported("cuDNN's graphs cannot draw the op's Philox noise");
  if (problem.total() > kMaxElements) return unsupported("more than 2^31 elements for a cuDNN graph");
  if (problem.guided() && problem.total() * static_cast<std::int64_t>(size_of(dtype)) % kVectorBytes != 0)
    return unsupported("the conditional half of model_output must be aligned to 16 bytes for a cuDNN graph");
  return supported();
}

// Sums and products with the terms of a linear form; -1: none.
class Form {
 public:
  explicit Form(Graph& graph) : graph_(graph) {}

  int sum(std::initializer_list<std::pair<double, int>> terms) {
    int total = -1;
    for (const auto& [coefficient, node] : terms) {
      if (coefficient == 0 || node < 0) continue;
      const int term = coefficient == 1 ? node : graph_.pointwise(Pointwise::multiply, node, scalar(coefficient));
      total = total < 0 ? term : graph_.pointwise(Pointwise::add, total, term);
    }
    return total;
  }
  int clamp(int node, double limit) {
    return graph_.pointwise(Pointwise::minimum, graph_.pointwise(Pointwise::maximum, node, scalar(-limit)),
                            scalar(limit));
  }
  // A node of its own for an output: an input, or a value that is read on, cannot be one.
  int copy(int node) { return graph_.pointwise(Pointwise::identity, node); }

 private:
  int scalar(double value) { return graph_.scalar(static_cast<float>(value)); }
  Graph& graph_;
};

std::unique_ptr<Graph> make_graph(const Problem& problem, DType dtype, const Layout& layout) {
  const Row row = sampler_step::coefficient_table(problem)[static_cast<std::size_t>(problem.step)];
  auto graph = std::make_unique<Graph>();
  const auto input_if = [&](bool present) { return present ? graph->input(dtype, layout) : -1; };
  const int x = input_if(true);
  const int model = input_if(true);
  const int model_cond = input_if(problem.guided());
  const int noise = input_if(problem.noise == Noise::given);
  const int history = input_if(problem.reads_history());
  const int previous = input_if(problem.blended());

  Form form(*graph);
  int x0 = form.sum({{row.model_x, x}, {row.model, model}, {row.model_cond, model_cond}});
  if (problem.clamp > 0) x0 = form.clamp(x0, row.limit);
  const int x_next =
      form.sum({{row.x, x}, {row.x0, x0}, {row.history, history}, {row.noise, noise}, {row.previous, previous}});
  graph->output(form.copy(x_next), dtype, layout);
  if (problem.writes_history())
    graph->output(form.copy(form.sum({{row.history_x, x}, {row.history_x0, x0}})), dtype, layout);
  return graph;
}

// As rows of at most kRowElements: cuDNN's engines are slower on one long row, and on the same rows described as
// channels.
Layout row_layout(const Problem& problem) {
  const std::int64_t columns = std::gcd(problem.total(), kRowElements);
  return {{1, problem.total() / columns, columns}, {problem.total(), columns, 1}};
}

std::unique_ptr<BaselineRun> create(const AnyProblem& any, DType dtype, const DeviceInfo&, const Algorithms& earlier) {
  const auto problem = any.as<Problem>();
  const auto half = static_cast<std::ptrdiff_t>(problem.total()) * static_cast<std::ptrdiff_t>(size_of(dtype));
  const auto bind = [problem, half](std::span<void* const> pointers, const Scratch&) {
    const auto tensors = sampler_step::definition.bind(problem, pointers);
    const char* conditional = problem.guided() ? static_cast<const char*>(tensors.model_output) + half : nullptr;
    const void* inputs[] = {tensors.x,     tensors.model_output, conditional,
                            tensors.noise, tensors.history,      tensors.previous_frame};
    std::vector<void*> bound;
    for (const void* pointer : inputs)
      if (pointer != nullptr) bound.push_back(const_cast<void*>(pointer));
    bound.push_back(tensors.x_next);
    if (tensors.history_out != nullptr) bound.push_back(tensors.history_out);
    return bound;
  };
  return run_of_graph(make_graph(problem, dtype, row_layout(problem)), kBuildSeconds, earlier, bind);
}

}  // namespace

Baseline sampler_step_baseline() {
  return {"sampler_step", "cudnn", can_run, create, version};
}

}  // namespace noisefloor::cudnn
