#include "networks/dependence.h"

#include <algorithm>

namespace noisefloor::networks {

std::vector<bool> nodes_reached_by(const Graph& graph, std::span<const ValueId> inputs) {
  std::vector<bool> reached(graph.values().size()), nodes;
  for (const ValueId input : inputs) reached[input] = true;
  for (const Node& node : graph.nodes()) {  // each behind all that it reads
    const bool so =
        std::any_of(node.values.begin(), node.values.end(), [&](ValueId id) { return reached[graph.whole(id)]; });
    nodes.push_back(so);
    if (!so) continue;
    const auto specs = node.op->tensors(node.problem, node.dtype);
    for (std::size_t t = 0; t < specs.size(); ++t)
      if (specs[t].role != Role::in) reached[graph.whole(node.values[t])] = true;
  }
  return nodes;
}

std::vector<bool> nodes_of_each_call(const Network& network) {
  if (!network.sampling) return std::vector<bool>(network.graph.nodes().size(), true);
  std::vector<ValueId> changing{network.x()};
  for (const NetworkTensor& input : network.inputs)
    if (!input.of_all_calls &&
        (input.kind == NetworkTensor::Kind::sigma || input.kind == NetworkTensor::Kind::timesteps))
      changing.push_back(input.value);
  return nodes_reached_by(network.graph, changing);
}

std::vector<bool> nodes_needed_by(const Graph& graph, std::span<const ValueId> wanted, std::span<const ValueId> there) {
  std::vector<bool> values(graph.values().size()), known(values.size()), nodes(graph.nodes().size());
  for (const ValueId id : wanted) values[graph.whole(id)] = true;
  for (const ValueId id : there) known[graph.whole(id)] = true;
  for (std::size_t i = nodes.size(); i-- > 0;) {  // each behind all that it reads
    const Node& node = graph.nodes()[i];
    const auto specs = node.op->tensors(node.problem, node.dtype);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      const ValueId id = graph.whole(node.values[t]);
      if (specs[t].role != Role::in && values[id] && !known[id]) nodes[i] = true;
    }
    if (!nodes[i]) continue;
    for (const ValueId id : node.values) values[graph.whole(id)] = true;
  }
  return nodes;
}

std::vector<bool> nodes_of_shallow_calls(const Network& network) {
  const std::vector<bool> each_call = nodes_of_each_call(network);
  std::vector<bool> needed =
      nodes_needed_by(network.graph, network.output_values(), std::span(&network.kept.value(), 1));
  for (std::size_t i = 0; i < needed.size(); ++i) needed[i] = needed[i] && each_call[i];
  return needed;
}

bool reads_beside_first(const Graph& graph, const Node& node, std::span<const Node* const> ahead) {
  const auto visit = [&](const Node& of, const auto& of_tensor) {
    const auto specs = of.op->tensors(of.problem, of.dtype);
    for (std::size_t i = 0; i < specs.size(); ++i) of_tensor(specs[i].role, i, graph.whole(of.values[i]));
  };
  bool reads = false;
  for (const Node* const writer : ahead)
    visit(*writer, [&](Role role, std::size_t, ValueId written) {
      if (role == Role::in) return;
      visit(node, [&](Role read_as, std::size_t i, ValueId read) {
        reads |= i > 0 && read_as != Role::out && read == written;
      });
    });
  return reads;
}

std::uint64_t weights_of(const Graph& graph, const Node& node) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < node.values.size(); ++i)
    if (graph[node.values[i]].kind == Value::Kind::weight) bits |= std::uint64_t{1} << i;
  return bits;
}

}  // namespace noisefloor::networks
