// What of a call depends on what: a loop of calls computes the rest once. Keys and values of a text, and embeddings of
// what stays, depend on neither latents nor levels; nor does, of a network with levels_ahead, what is embedded of the
// levels of all calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

// Of each node, in the graph's order: whether one of `inputs` reaches it.
std::vector<bool> nodes_reached_by(const Graph& graph, std::span<const ValueId> inputs);

// Of each node, whether every call of a sampling loop runs it: those that latents or its level reach. Of a network that
// was not built for sampling all.
std::vector<bool> nodes_of_each_call(const Network& network);

// Of each node, whether `wanted` need it where the values `there` already are. Outputs of a node are not told apart.
std::vector<bool> nodes_needed_by(const Graph& graph, std::span<const ValueId> wanted, std::span<const ValueId> there);

// Of each node, whether a call runs it that takes network.kept from an earlier call.
std::vector<bool> nodes_of_shallow_calls(const Network& network);

// Whether `node` reads an activation that one of `ahead` writes, but for its first tensor: a residual, say, or keys.
bool reads_beside_first(const Graph& graph, const Node& node, std::span<const Node* const> ahead);

// A bit for each of the node's tensors: its weights, which no launch writes.
std::uint64_t weights_of(const Graph& graph, const Node& node);

}  // namespace noisefloor::networks
