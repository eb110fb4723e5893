// How much device memory a network will take at some batch, from sizes alone: so that whoever asks for too many images
// can be told how many fit.
#pragma once

#include <functional>
#include <optional>

#include "bench/pipeline/plan.h"
#include "bench/platform/platform.h"
#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

// What a plan's measurement of a problem allocates at once: tensors between guard bands, and outputs once more for the
// comparison. Without workspaces.
std::size_t trial_bytes(const Op& op, const AnyProblem& problem, DType dtype);

// Which variant will run a node; null where it is not known yet, or a vendor's.
using VariantOf = std::function<const AnyVariant*(std::size_t node)>;

// The most that is allocated at once to make an Executor of `network`: its activations, inputs, weights, prepared
// weights and the largest workspace; or, before that, to measure a node. Where `variant_of` knows none, or one that
// cannot run the problem, the most that any of ours asks for stands in; what vendors' libraries work in is not known
// beforehand. nullopt: a node that nothing of ours can run.
std::optional<std::size_t> executor_bytes(const Network& network, const PlatformDescription& platform,
                                          const VariantOf& variant_of);

// Of free memory, what a network can have: beside what is counted, a device holds the code of kernels, which is loaded
// as they are first launched, and recorded graphs.
std::size_t bytes_for_networks(Platform& platform);

}  // namespace noisefloor::pipeline
