#include "bench/pipeline/memory_need.h"

#include <algorithm>
#include <set>

#include "bench/measure/fixture.h"
#include "kernels/core/alignment.h"
#include "networks/lifetimes.h"

namespace noisefloor::pipeline {
namespace {

struct Need {
  std::size_t workspace = 0, prepared = 0;
};

bool runs(const AnyVariant& variant, const Node& node, bool host) {
  return (variant.kind == Kind::host) == host && variant.built && variant.can_run(node.problem, node.dtype);
}

Need need_of(const AnyVariant& variant, const Node& node, const DeviceInfo& device) {
  return {variant.workspace_bytes(node.problem, node.dtype, device), variant.prepared_bytes(node.problem, node.dtype)};
}

std::optional<Need> most_of_ours(const Node& node, const PlatformDescription& platform) {
  std::optional<Need> most;
  for (const AnyVariant& variant : node.op->variants) {
    if (!runs(variant, node, platform.is_host)) continue;
    const Need need = need_of(variant, node, platform.info);
    if (!most) most.emplace();
    most->workspace = std::max(most->workspace, need.workspace);
    most->prepared = std::max(most->prepared, need.prepared);
  }
  return most;
}

}  // namespace

std::size_t trial_bytes(const Op& op, const AnyProblem& problem, DType dtype) {
  std::size_t bytes = Fixture::kGuardBytes;
  for (const TensorSpec& spec : op.tensors(problem, dtype)) {
    bytes += aligned(spec.bytes()) + Fixture::kGuardBytes;
    if (spec.role != Role::in) bytes += spec.bytes();
  }
  return bytes;
}

std::optional<std::size_t> executor_bytes(const Network& network, const PlatformDescription& platform,
                                          const VariantOf& variant_of) {
  const Graph& graph = network.graph;
  std::size_t held =
                  place(activation_lifetimes(graph, network.output_values(), nodes_of_each_call(network), network.kept))
                      .bytes,
              workspace = 0, measuring = 0;
  for (const Value& value : graph.values())
    if (value.kind != Value::Kind::activation && value.kind != Value::Kind::unread) held += aligned(value.bytes());
  std::set<ProblemId> measured;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const AnyVariant* const variant = variant_of(i);
    const std::optional<Need> need = variant != nullptr && runs(*variant, node, platform.is_host)
                                         ? need_of(*variant, node, platform.info)
                                         : most_of_ours(node, platform);
    if (!need) return std::nullopt;
    workspace = std::max(workspace, need->workspace);
    held += aligned(need->prepared);
    if (measured.insert(problem_id(node)).second)
      measuring = std::max(measuring, trial_bytes(*node.op, node.problem, node.dtype) + need->workspace +
                                          Fixture::kGuardBytes + need->prepared);
  }
  return std::max(held + aligned(workspace), measuring);
}

std::size_t bytes_for_networks(Platform& platform) {
  constexpr std::size_t kDeviceReserve = std::size_t{256} << 20;
  const std::size_t free = platform.free_bytes();
  return free - (platform.description().is_host ? 0 : std::min(kDeviceReserve, free));
}

}  // namespace noisefloor::pipeline
