#include <fmt/format.h>

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/schedule.h"
#include "networks/rewrite.h"

namespace noisefloor::networks {
namespace {

constexpr std::int64_t kColumnsOfARow = 8;                // of 2 bytes: a load of 16
constexpr std::int64_t kColumns = gemm::kSmallestBlockN;  // a tile of ptx_sm90a lies in one part
constexpr std::int64_t kMostElements = 132 * 128 * 128;   // a wave of wide tiles on an H200

bool stacks(const Value& weight) {
  return weight.source && weight.source->layout == WeightSource::Layout::plain && weight.source->rows == 0 &&
         !weight.source->share;
}

// What products must agree in to be one: of several rows in their columns, too. None for a node that stays alone.
using Group = std::tuple<ValueId, std::string, DType, double, double>;
std::optional<Group> group_of(const Graph& graph, const Node& node) {
  gemm::Problem problem = node.problem.as<gemm::Problem>();
  if (problem.m * problem.n > kMostElements || problem.image_shift || problem.residual || problem.gated())
    return std::nullopt;
  if (problem.n % (problem.m == 1 ? kColumnsOfARow : kColumns) != 0) return std::nullopt;
  const Value& b = graph[node.value("b")];
  const Value* bias = problem.bias ? &graph[node.value("bias")] : nullptr;
  if (!stacks(b) || (bias && !stacks(*bias))) return std::nullopt;
  if (problem.m == 1) problem.n = kColumnsOfARow;
  return Group{node.value("a"), node.op->print(AnyProblem(problem)), node.dtype, b.source->times,
               bias ? bias->source->times : 1};
}

using Members = std::vector<const Node*>;

// The members' weights or biases, one below the other.
ValueId stacked(Graph& graph, const Members& members, const char* tensor) {
  Value all = graph[members.front()->value(tensor)];
  for (std::size_t i = 1; i < members.size(); ++i) {
    const Value& value = graph[members[i]->value(tensor)];
    const auto tensors = value.source->tensors();
    all.shape.front() += value.shape.front();
    all.source->below.insert(all.source->below.end(), tensors.begin(), tensors.end());
  }
  return graph.weight(*all.source, all.shape, all.dtype);
}

void merge(Rewrite& rewrite, const Members& members) {
  Graph& graph = rewrite.graph();
  const Node& first = *members.front();
  gemm::Problem problem = first.problem.as<gemm::Problem>();
  if (problem.m > 1) problem.part_columns = problem.n;
  problem.n = 0;
  for (const Node* member : members) problem.n += member->problem.as<gemm::Problem>().n;
  Bindings inputs{{"a", first.value("a")}, {"b", stacked(graph, members, "b")}};
  if (problem.bias) inputs["bias"] = stacked(graph, members, "bias");
  const std::string name = fmt::format("{} and {} more", first.name, members.size() - 1);
  const ValueId whole = rewrite.add(first, name, AnyProblem(problem), inputs).value("d");
  std::int64_t element = 0;
  for (const Node* member : members) {
    const ValueId output = member->value("d");
    const std::vector<std::int64_t> shape = graph[output].shape;
    const std::int64_t elements = graph[output].elements();
    rewrite.redirect(output, graph.part(whole, graph[output].name, element, shape));
    element += elements;
  }
}

}  // namespace

void merge_products(Rewrite& rewrite) {
  std::map<Group, Members> groups;
  rewrite.each("gemm", [&](const Node& node) {
    if (const auto group = group_of(rewrite.graph(), node)) groups[*group].push_back(&node);
  });
  for (const auto& [group, members] : groups)
    if (members.size() > 1) merge(rewrite, members);
}

}  // namespace noisefloor::networks
