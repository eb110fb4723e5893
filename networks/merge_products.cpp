#include "networks/merge_products.h"

#include <fmt/format.h>

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/schedule.h"
#include "networks/graph_copy.h"

namespace noisefloor::networks {
namespace {

constexpr std::int64_t kColumnsOfARow = 8;                // of 2 bytes: a load of 16
constexpr std::int64_t kColumns = gemm::kSmallestBlockN;  // a tile of ptx_sm90a lies in one part
constexpr std::int64_t kMostElements = 132 * 128 * 128;   // a wave of wide tiles on an H200

bool stacks(const Value& weight) {
  return weight.source && weight.source->layout == WeightSource::Layout::plain && weight.source->rows == 0 &&
         weight.source->first_row == 0 && !weight.source->share;
}

// What products must agree in to be one: of several rows in their columns, too. None for a node that stays alone.
using Group = std::tuple<ValueId, std::string, DType, double, double>;
std::optional<Group> group_of(const Graph& graph, const Node& node) {
  if (node.op != find_op("gemm")) return std::nullopt;
  gemm::Problem problem = node.problem.as<gemm::Problem>();
  if (problem.m * problem.n > kMostElements || problem.image_shift || problem.residual || problem.gated())
    return std::nullopt;
  if (problem.n % (problem.m == 1 ? kColumnsOfARow : kColumns) != 0) return std::nullopt;
  if (!stacks(graph[node.values.at(1)]) || (problem.bias && !stacks(graph[node.values.at(2)]))) return std::nullopt;
  if (problem.m == 1) problem.n = kColumnsOfARow;
  const double bias_times = problem.bias ? graph[node.values.at(2)].source->times : 1;
  return Group{node.values.at(0), node.op->print(AnyProblem(problem)), node.dtype,
               graph[node.values.at(1)].source->times, bias_times};
}

class Merge {
 public:
  explicit Merge(const Graph& from) : graph_(from) {
    for (const Node& node : from.nodes())
      if (const auto group = group_of(from, node)) members_[*group].push_back(&node);
  }

  void run(Network& network) {
    for (const Node& node : graph_.from().nodes()) {
      const auto group = group_of(graph_.from(), node);
      if (!group || members_[*group].size() == 1)
        graph_.copy(node);
      else if (members_[*group].front() == &node)
        merge(members_[*group]);
    }
    graph_.finish(network);
  }

 private:
  // The members' weights or biases, one below the other.
  ValueId stacked(const std::vector<const Node*>& members, std::size_t which) {
    const Value& first = graph_.from()[members.front()->values.at(which)];
    WeightSource source = *first.source;
    std::vector<std::int64_t> shape = first.shape;
    shape.front() = 0;
    for (const Node* member : members) {
      const Value& value = graph_.from()[member->values.at(which)];
      shape.front() += value.shape.front();
      const auto tensors = value.source->tensors();
      if (member != members.front()) source.below.insert(source.below.end(), tensors.begin(), tensors.end());
    }
    return graph_.to().weight(std::move(source), std::move(shape), first.dtype);
  }

  void merge(const std::vector<const Node*>& members) {
    const Node& first = *members.front();
    gemm::Problem problem = first.problem.as<gemm::Problem>();
    problem.n = 0;
    for (const Node* member : members) problem.n += member->problem.as<gemm::Problem>().n;
    if (problem.m > 1) problem.part_columns = first.problem.as<gemm::Problem>().n;
    std::map<std::string, ValueId> inputs{{"a", graph_.take(first.values.at(0))}, {"b", stacked(members, 1)}};
    if (problem.bias) inputs["bias"] = stacked(members, 2);
    const ValueId whole = graph_.to()
                              .add(fmt::format("{} and {} more", first.name, members.size() - 1), "gemm",
                                   first.op->print(AnyProblem(problem)), first.dtype, inputs)
                              .at(0);
    std::int64_t element = 0;
    for (const Node* member : members) {
      const ValueId output = member->values.back();
      graph_.move(output, graph_.to().part(whole, graph_.from()[output].name, element, graph_.from()[output].shape));
      element += graph_.from()[output].elements();
    }
  }

  GraphCopy graph_;
  std::map<Group, std::vector<const Node*>> members_;
};

}  // namespace

void merge_products(Network& network) {
  Merge(network.graph).run(network);
}

}  // namespace noisefloor::networks
