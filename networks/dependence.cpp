#include "networks/dependence.h"

#include <algorithm>

namespace noisefloor::networks {

std::vector<bool> nodes_reached_by(const Graph& graph, std::span<const ValueId> inputs) {
  std::vector<bool> reached(graph.values().size()), nodes;
  for (const ValueId input : inputs) reached[input] = true;
  for (const Node& node : graph.nodes()) {  // each behind all that it reads
    const bool so = std::any_of(node.values.begin(), node.values.end(), [&](ValueId id) { return reached[id]; });
    if (so)
      for (const ValueId id : node.values) reached[id] = reached[id] || graph[id].kind == Value::Kind::activation;
    nodes.push_back(so);
  }
  return nodes;
}

}  // namespace noisefloor::networks
