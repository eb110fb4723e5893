// Places values of limited lifetime in one block of memory, so that those alive together do not overlap.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "networks/graph.h"

namespace noisefloor::networks {

// Bytes needed from step `first` (that writes it) to step `last` (that reads it last), both included.
struct Lifetime {
  std::size_t bytes = 0;
  std::size_t first = 0, last = 0;
};

struct Placement {
  std::vector<std::size_t> offsets;  // of each lifetime; multiples of 256, as launchers ask of every pointer
  std::size_t bytes = 0;             // of the whole block
};

// Largest first, each at the lowest place that is free for its whole life: within a quarter of the largest sum alive at
// once for our networks.
Placement place(const std::vector<Lifetime>& lifetimes);

// The lifetimes of a graph's activations, by value; values of other kinds get no bytes. `kept` live to the end. Nodes
// that are not of `each_call` (empty: all are) run first, and once: what the others read of them lives to the end too.
// `throughout` lives from the beginning: a later call reads it.
std::vector<Lifetime> activation_lifetimes(const Graph& graph, const std::vector<ValueId>& kept,
                                           const std::vector<bool>& each_call = {},
                                           std::optional<ValueId> throughout = {});

// The sum of those that live at a step.
std::size_t bytes_alive(const std::vector<Lifetime>& lifetimes, std::size_t step);

}  // namespace noisefloor::networks
