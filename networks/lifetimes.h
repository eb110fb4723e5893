// When a node runs, how long the values that it writes live, and where those that live together lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

// ---- What of a call depends on what: a loop of calls computes the rest once. Keys and values of a text, and
// embeddings of what stays, depend on neither latents nor levels; nor does, of a network with hoisted_levels, what is
// embedded of the levels of all calls.

// Of each node, in the graph's order: whether one of `inputs` reaches it.
std::vector<bool> nodes_reached_by(const Graph& graph, std::span<const ValueId> inputs);

// Of each node, whether every call of a sampling loop runs it: those that latents or its level reach. Of a network that
// was not built for sampling all.
std::vector<bool> nodes_of_each_call(const Network& network);

// Of each node, whether a call runs it that takes network.kept from an earlier call. Outputs of a node are not told
// apart.
std::vector<bool> nodes_of_shallow_calls(const Network& network);

// Whether `node` reads an activation that one of `ahead` writes, but for its first tensor: a residual, say, or keys.
bool reads_beside_first(const Graph& graph, const Node& node, std::span<const Node* const> ahead);

// A bit for each of the node's tensors: its weights, which no launch writes.
std::uint64_t weights_of(const Graph& graph, const Node& node);

// Whether a launch may write what the node reads as its weights, which are states or (turned) activations: what a
// variant prepares of them is prepared anew before each of its launches.
bool reads_written_weights(const Graph& graph, const Node& node);

// ---- Places values of limited lifetime in one block of memory, so that those alive together do not overlap.

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
