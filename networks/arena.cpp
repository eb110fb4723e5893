#include "networks/arena.h"

#include <algorithm>
#include <numeric>

#include "kernels/core/alignment.h"

namespace noisefloor::networks {
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
