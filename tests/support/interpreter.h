// Runs nodes of a graph by their ops' oracles: sums in double, tensors in their own types.
#pragma once

#include <omp.h>

#include <numeric>
#include <vector>

#include "networks/graph.h"

namespace noisefloor::networks {

class Interpreter {
 public:
  // All zero, but constants.
  explicit Interpreter(const Graph& graph) : graph_(&graph) {
    for (const Value& value : graph.values()) {
      auto& bytes = memory_.emplace_back(value.part ? 0 : value.bytes());
      for (std::int64_t i = 0; value.kind == Value::Kind::constant && i < value.elements(); ++i)
        store_element(value.dtype, bytes.data(), i, static_cast<double>(i % value.period));
    }
  }

  void* data(ValueId id) {
    const auto& part = (*graph_)[id].part;
    const std::size_t first = part ? static_cast<std::size_t>(part->first) * size_of((*graph_)[id].dtype) : 0;
    return memory_[graph_->whole(id)].data() + first;
  }
  double get(ValueId id, std::int64_t element) { return load_element((*graph_)[id].dtype, data(id), element); }
  void set(ValueId id, std::int64_t element, double value) {
    store_element((*graph_)[id].dtype, data(id), element, value);
  }
  std::vector<double> all(ValueId id) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < (*graph_)[id].elements(); ++i) values.push_back(get(id, i));
    return values;
  }
  void set(ValueId id, const std::vector<double>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) set(id, static_cast<std::int64_t>(i), values[i]);
  }

  // Nodes first to last - 1.
  void run(std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) run(graph_->nodes()[i]);
  }
  void run(const Node& node) {
    const auto results = results_of(node);
    for (std::size_t i = 0; i < results.size(); ++i) set(node.values[i], results[i]);
  }
  // What it writes, before that is rounded, by tensor.
  std::vector<std::vector<double>> results_of(const Node& node) {
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);  // tensors are small: threads would wait for each other
    const auto tensors = node.tensors();
    std::vector<HostTensor> inputs;
    for (const Node::Tensor& tensor : tensors)
      inputs.push_back({(*graph_)[tensor.value].dtype, tensor.role == Role::out ? nullptr : data(tensor.value)});
    std::vector<std::vector<double>> results(tensors.size());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].role == Role::in) continue;
      results[i].resize(static_cast<std::size_t>((*graph_)[tensors[i].value].elements()));
      std::vector<std::int64_t> elements(results[i].size());
      std::iota(elements.begin(), elements.end(), 0);
      node.op->reference(node.problem, node.dtype, inputs, i, elements, results[i]);
    }
    omp_set_num_threads(threads);
    return results;
  }

 private:
  const Graph* graph_;
  std::vector<std::vector<char>> memory_;
};

// What a function of some of a graph's numbers gains between two places on either side of them, beside what its
// gradient says of that. Of steps h and h / 2 together, which cancels the third derivative.
struct Gain {
  double measured = 0, expected = 0;
};
template <class Function>
Gain gain_along(Interpreter& interpreter, ValueId of, const std::vector<double>& gradient,
                const std::vector<double>& direction, double h, const Function& function) {
  const std::vector<double> at = interpreter.all(of);
  const auto gain = [&](double step) {
    Gain both;
    for (const double sign : {1.0, -1.0}) {
      for (std::size_t i = 0; i < at.size(); ++i) {
        interpreter.set(of, static_cast<std::int64_t>(i), at[i] + sign * step * direction[i]);
        both.expected += sign * gradient[i] * interpreter.get(of, static_cast<std::int64_t>(i));
      }
      both.measured += sign * function();
    }
    return both;
  };
  const Gain whole = gain(h), half = gain(h / 2);
  interpreter.set(of, at);
  return {8 * half.measured - whole.measured, 8 * half.expected - whole.expected};
}

}  // namespace noisefloor::networks
