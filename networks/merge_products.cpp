#include "networks/merge_products.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/gemm/gemm.h"

namespace noisefloor::networks {
namespace {

constexpr std::int64_t kPartColumns = 8;  // of 2 bytes: a load of 16

bool stacks(const Value& weight) {
  return weight.source && weight.source->layout == WeightSource::Layout::plain && weight.source->rows == 0 &&
         weight.source->first_row == 0 && !weight.source->share;
}

// What products must agree in to be one; none for a node that stays alone.
using Group = std::tuple<ValueId, std::string, DType, double, double>;
std::optional<Group> group_of(const Graph& graph, const Node& node) {
  if (node.op != find_op("gemm")) return std::nullopt;
  gemm::Problem problem = node.problem.as<gemm::Problem>();
  if (problem.m != 1 || problem.residual || problem.gated() || problem.n % kPartColumns != 0) return std::nullopt;
  if (!stacks(graph[node.values.at(1)]) || (problem.bias && !stacks(graph[node.values.at(2)]))) return std::nullopt;
  problem.n = kPartColumns;
  const double bias_times = problem.bias ? graph[node.values.at(2)].source->times : 1;
  return Group{node.values.at(0), node.op->print(AnyProblem(problem)), node.dtype,
               graph[node.values.at(1)].source->times, bias_times};
}

// Builds the network's graph again, node by node.
class Merge {
 public:
  explicit Merge(const Graph& from) : from_(from), moved_(from.values().size()) {
    for (const Node& node : from_.nodes())
      if (const auto group = group_of(from_, node)) members_[*group].push_back(&node);
  }

  Graph run() {
    for (ValueId id = 0; id < moved_.size(); ++id) {
      const Value& value = from_[id];
      if (value.kind == Value::Kind::input) moved_[id] = to_.input(value.name, value.shape, value.dtype);
      if (value.kind == Value::Kind::unread) to_.leave_unread(value.name, value.shape);
    }
    for (const Node& node : from_.nodes()) {
      const auto group = group_of(from_, node);
      if (!group || members_[*group].size() == 1)
        copy(node);
      else if (members_[*group].front() == &node)
        merge(members_[*group]);
    }
    return std::move(to_);
  }

  ValueId moved(ValueId id) const { return moved_.at(id).value(); }

 private:
  ValueId take(ValueId id) {
    const Value& value = from_[id];
    if (!moved_[id] && value.part)
      moved_[id] = to_.part(moved(value.part->of), value.name, value.part->first, value.shape);
    if (!moved_[id] && value.kind == Value::Kind::weight)
      moved_[id] = to_.weight(*value.source, value.shape, value.dtype);
    if (!moved_[id]) moved_[id] = to_.constant(value.name, value.shape, value.dtype, value.period);
    return *moved_[id];
  }

  void copy(const Node& node) {
    std::map<std::string, ValueId> inputs;
    std::vector<ValueId> outputs;
    const auto specs = node.op->tensors(node.problem, node.dtype);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].role == Role::out)
        outputs.push_back(node.values[i]);
      else
        inputs[specs[i].name] = take(node.values[i]);
    }
    const auto added = to_.add(node.name, node.op->name, node.text, node.dtype, inputs);
    for (std::size_t i = 0; i < added.size(); ++i) moved_[outputs[i]] = added[i];
  }

  // The members' weights or biases, one below the other.
  ValueId stacked(const std::vector<const Node*>& members, std::size_t which) {
    const Value& first = from_[members.front()->values.at(which)];
    WeightSource source = *first.source;
    std::vector<std::int64_t> shape = first.shape;
    shape.front() = 0;
    for (const Node* member : members) {
      const Value& value = from_[member->values.at(which)];
      shape.front() += value.shape.front();
      const auto tensors = value.source->tensors();
      if (member != members.front()) source.below.insert(source.below.end(), tensors.begin(), tensors.end());
    }
    return to_.weight(std::move(source), std::move(shape), first.dtype);
  }

  void merge(const std::vector<const Node*>& members) {
    const Node& first = *members.front();
    gemm::Problem problem = first.problem.as<gemm::Problem>();
    problem.n = 0;
    for (const Node* member : members) problem.n += member->problem.as<gemm::Problem>().n;
    std::map<std::string, ValueId> inputs{{"a", take(first.values.at(0))}, {"b", stacked(members, 1)}};
    if (problem.bias) inputs["bias"] = stacked(members, 2);
    const ValueId whole = to_.add(fmt::format("{} and {} more", first.name, members.size() - 1), "gemm",
                                  first.op->print(AnyProblem(problem)), first.dtype, inputs)
                              .at(0);
    std::int64_t column = 0;
    for (const Node* member : members) {
      const ValueId output = member->values.back();
      moved_[output] = to_.part(whole, from_[output].name, column, from_[output].shape);
      column += from_[output].elements();
    }
  }

  const Graph& from_;
  Graph to_;
  std::vector<std::optional<ValueId>> moved_;
  std::map<Group, std::vector<const Node*>> members_;
};

}  // namespace

void merge_products_of_a_row(Network& network) {
  Merge merge(network.graph);
  Graph merged = merge.run();
  for (auto* tensors : {&network.inputs, &network.outputs})
    for (NetworkTensor& tensor : *tensors) tensor.value = merge.moved(tensor.value);
  network.graph = std::move(merged);
}

}  // namespace noisefloor::networks
