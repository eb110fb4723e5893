// Steps that make norms and activations again: what memory they save.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "networks/lifetimes.h"
#include "networks/training.h"

namespace noisefloor::networks {
namespace {

constexpr double kGiB = 1 << 30;

// Of a step of adm64 with batch 32: what is trained, and its activations in their arena.
double gibibytes(bool recompute) {
  const Training step = build_training(require_network("adm64"),
                                       {.batch = 32, .images = 32, .dtype = DType::bf16, .recompute = recompute});
  const Graph& graph = step.network.graph;
  std::size_t bytes = place(activation_lifetimes(graph, step.network.output_values())).bytes;
  for (const Value& value : graph.values())
    if (value.kind == Value::Kind::state && !value.part) bytes += value.bytes();
  return static_cast<double>(bytes) / kGiB;
}

// PyTorch's graph reserves 12.3 GiB. Workspaces come on top.
TEST(Recompute, LowersTheMemoryOfAStepOfAdm64) {
  const double kept = gibibytes(false), again = gibibytes(true);
  EXPECT_LT(kept, 0.92 * 12.3);
  EXPECT_LT(again, 0.78 * 12.3);
}

// A copy, or what a copy stands in for, would be time for nothing.
TEST(Recompute, LeavesNoNodeThatNothingReads) {
  for (const auto& [name, batch] : {std::pair("adm64", 32), {"edm-cifar", 64}, {"unetcu", 32}, {"mnist-unet", 128}}) {
    const Network network =
        build_training(require_network(name), {.batch = batch, .images = 10, .recompute = true}).network;
    const Graph& graph = network.graph;
    std::set<ValueId> read;
    for (const ValueId id : network.output_values()) read.insert(id);
    for (const Node& node : graph.nodes())
      for (const Node::Tensor& tensor : node.tensors())
        if (tensor.role != Role::out) read.insert(graph.whole(tensor.value));
    const auto serves = [&](const Node::Tensor& tensor) {
      return tensor.role != Role::in &&
             (graph[tensor.value].kind == Value::Kind::state || read.contains(graph.whole(tensor.value)));
    };
    for (const Node& node : graph.nodes())
      EXPECT_TRUE(std::ranges::any_of(node.tensors(), serves)) << name << " " << node.name;
  }
}

}  // namespace
}  // namespace noisefloor::networks
