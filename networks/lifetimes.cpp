#include "networks/lifetimes.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "kernels/core/device.h"

namespace noisefloor::networks {

std::vector<bool> nodes_reached_by(const Graph& graph, std::span<const ValueId> inputs) {
  std::vector<bool> reached(graph.values().size()), nodes;
  for (const ValueId input : inputs) reached[input] = true;
  for (const Node& node : graph.nodes()) {  // each behind all that it reads
    const bool so =
        std::any_of(node.values.begin(), node.values.end(), [&](ValueId id) { return reached[graph.whole(id)]; });
    nodes.push_back(so);
    if (!so) continue;
    for (const Node::Tensor& tensor : node.tensors())
      if (tensor.role != Role::in) reached[graph.whole(tensor.value)] = true;
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

std::vector<bool> nodes_of_shallow_calls(const Network& network) {
  const Graph& graph = network.graph;
  const std::vector<bool> each_call = nodes_of_each_call(network);
  std::vector<bool> wanted(graph.values().size()), nodes(graph.nodes().size());
  for (const ValueId id : network.output_values()) wanted[graph.whole(id)] = true;
  for (std::size_t i = nodes.size(); i-- > 0;) {  // each behind all that it reads
    const Node& node = graph.nodes()[i];
    for (const Node::Tensor& tensor : node.tensors()) {
      const ValueId id = graph.whole(tensor.value);
      if (tensor.role != Role::in && wanted[id] && id != graph.whole(network.kept.value())) nodes[i] = each_call[i];
    }
    if (!nodes[i]) continue;
    for (const ValueId id : node.values) wanted[graph.whole(id)] = true;
  }
  return nodes;
}

bool reads_beside_first(const Graph& graph, const Node& node, std::span<const Node* const> ahead) {
  std::set<ValueId> written;
  for (const Node* const writer : ahead)
    for (const Node::Tensor& tensor : writer->tensors())
      if (tensor.role != Role::in) written.insert(graph.whole(tensor.value));
  const auto tensors = node.tensors();
  return std::any_of(tensors.begin() + 1, tensors.end(), [&](const Node::Tensor& tensor) {
    return tensor.role != Role::out && written.contains(graph.whole(tensor.value));
  });
}

std::uint64_t weights_of(const Graph& graph, const Node& node) {
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < node.values.size(); ++i)
    if (graph[node.values[i]].kind == Value::Kind::weight) bits |= std::uint64_t{1} << i;
  return bits;
}

bool reads_written_weights(const Graph& graph, const Node& node) {
  const std::vector<Node::Tensor> tensors = node.tensors();
  const auto reads = [&](Value::Kind kind) {
    return std::ranges::any_of(tensors, [&](const Node::Tensor& tensor) {
      return tensor.role != Role::out && graph[tensor.value].kind == kind;
    });
  };
  return reads(Value::Kind::state) || !(reads(Value::Kind::weight) || reads(Value::Kind::constant));
}

Placement place(const std::vector<Lifetime>& lifetimes) {
  std::vector<std::size_t> order(lifetimes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });

  Placement placement;
  placement.offsets.assign(lifetimes.size(), 0);
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t index : order) {
    const Lifetime& life = lifetimes[index];
    if (life.bytes == 0) continue;
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      const Lifetime& neighbour = lifetimes[other];
      if (neighbour.last < life.first || life.last < neighbour.first) continue;
      if (offset + aligned(life.bytes) <= placement.offsets[other]) break;  // fits in the gap before it
      offset = std::max(offset, placement.offsets[other] + aligned(neighbour.bytes));
    }
    placement.offsets[index] = offset;
    placement.bytes = std::max(placement.bytes, offset + aligned(life.bytes));
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), index,
                         [&](std::size_t a, std::size_t b) { return placement.offsets[a] < placement.offsets[b]; }),
        index);
  }
  return placement;
}

std::vector<Lifetime> activation_lifetimes(const Graph& graph, const std::vector<ValueId>& kept,
                                           const std::vector<bool>& each_call, std::optional<ValueId> throughout) {
  std::vector<Lifetime> lifetimes(graph.values().size());
  std::size_t step = 0, once = 0;  // once: how many steps are before those of each call
  for (const bool each : {false, true}) {
    for (std::size_t node = 0; node < graph.nodes().size(); ++node) {
      if ((each_call.empty() || each_call[node]) != each) continue;
      for (const ValueId read : graph.nodes()[node].values) {
        const ValueId id = graph.whole(read);
        if (graph[id].kind != Value::Kind::activation) continue;
        if (lifetimes[id].bytes == 0) lifetimes[id] = {graph[id].bytes(), step, step};
        lifetimes[id].last = lifetimes[id].first < once ? graph.nodes().size() : step;
      }
      ++step;
    }
    if (!each) once = step;
  }
  for (const ValueId id : kept) lifetimes[graph.whole(id)].last = graph.nodes().size();
  if (throughout) {
    Lifetime& value = lifetimes[graph.whole(*throughout)];
    value.first = 0, value.last = graph.nodes().size();
  }
  return lifetimes;
}

std::size_t bytes_alive(const std::vector<Lifetime>& lifetimes, std::size_t step) {
  std::size_t bytes = 0;
  for (const Lifetime& value : lifetimes)
    if (value.first <= step && step <= value.last) bytes += value.bytes;
  return bytes;
}

}  // namespace noisefloor::networks
