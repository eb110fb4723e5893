// Steps that make norms and activations again: what memory they save.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace noisefloor::networks
