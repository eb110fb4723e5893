#include "networks/dependence.h"

#include <algorithm>

namespace noisefloor::networks {

std::vector<bool> nodes_reached_by(const Graph& graph, std::span<const ValueId> inputs) {
  std::vector<bool> reached(graph.values().size()), nodes;
  for (const ValueId input : inputs) reached[input] = true;
  for (const Node& node : graph.nodes()) {  // each behind all that it reads
    const bool so =
        std::any_of(node.values.begin(), node.values.end(), [&](ValueId id) { return reached[graph.whole(id)]; });
    if (so)
      for (const ValueId id : node.values)
        if (graph[id].kind == Value::Kind::activation) reached[graph.whole(id)] = true;
    nodes.push_back(so);
  }
  return nodes;
}

std::vector<bool> nodes_of_each_call(const Network& network) {
  if (!network.sampling) return std::vector<bool>(network.graph.nodes().size(), true);
  std::vector<ValueId> changing{network.x()};
  for (const NetworkTensor& input : network.inputs)
    if (input.kind == NetworkTensor::Kind::sigma || input.kind == NetworkTensor::Kind::timesteps)
      changing.push_back(input.value);
  return nodes_reached_by(network.graph, changing);
}

}  // namespace noisefloor::networks
