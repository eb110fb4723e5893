// What a call of a sampling loop computes that takes what is below the decoder's last blocks from an earlier one.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "kernels/core/fields.h"
#include "networks/lifetimes.h"
#include "tests/support/refusal.h"
#include "tests/support/rewritten.h"

namespace noisefloor::networks {
namespace {

std::vector<Network> networks_with(std::int64_t blocks) {
  std::vector<Network> networks;
  for (const NetworkInfo& info : all_networks())
    if (!info.decodes())
      for (const bool fold : {false, true})
        for (const auto& norms : {std::optional<NormFusion>(), std::optional(kEveryNorm)}) {
          networks.push_back(
              info.build({.sampling = true, .guided = info.classes > 0, .shallow_blocks = blocks, .fold_skips = fold}));
          fuse(networks.back(), {.fuse_norms = norms});
        }
  return networks;
}

TEST(ShallowCalls, ReadOnlyWhatIsThere) {
  for (const std::int64_t blocks : {1, 2})
    for (const Network& network : networks_with(blocks)) {
      const Graph& graph = network.graph;
      const std::vector<bool> shallow = nodes_of_shallow_calls(network), each = nodes_of_each_call(network);
      std::set<ValueId> there{graph.whole(network.kept.value())};
      for (std::size_t i = 0; i < each.size(); ++i)
        for (const ValueId id : graph.nodes()[i].values)
          if (!each[i]) there.insert(graph.whole(id));
      for (std::size_t i = 0; i < shallow.size(); ++i) {
        if (!shallow[i]) continue;
        const Node& node = graph.nodes()[i];
        EXPECT_TRUE(each[i]) << network.name() << ": " << node.name;
        const auto specs = node.op->tensors(node.problem, node.dtype);
        for (std::size_t t = 0; t < specs.size(); ++t) {
          const ValueId id = graph.whole(node.values[t]);
          if (graph[id].kind != Value::Kind::activation) continue;
          if (specs[t].role == Role::out)
            EXPECT_TRUE(id != network.kept && there.insert(id).second) << network.name() << ": " << node.name;
          else
            EXPECT_TRUE(there.contains(id)) << network.name() << ": " << node.name << " reads " << graph[id].name;
        }
      }
      for (const ValueId output : network.output_values()) EXPECT_TRUE(there.contains(output)) << network.name();
    }
}

// A block more is computed: all of a call with fewer, and something else.
TEST(ShallowCalls, GrowWithTheBlocks) {
  for (const NetworkInfo& info : all_networks()) {
    if (info.decodes()) continue;
    const auto blocks = std::ssize(info.build({.sampling = true}).below);
    ASSERT_GE(blocks, 2) << info.name;
    std::vector<bool> fewer;
    for (std::int64_t some = 1; some <= blocks; ++some) {
      const std::vector<bool> nodes = nodes_of_shallow_calls(info.build({.sampling = true, .shallow_blocks = some}));
      for (std::size_t i = 0; i < fewer.size(); ++i) EXPECT_LE(fewer[i], nodes[i]) << info.name << ", " << some;
      EXPECT_GT(std::ranges::count(nodes, true), std::ranges::count(fewer, true)) << info.name << ", " << some;
      EXPECT_LT(std::ranges::count(nodes, true), std::ssize(nodes)) << info.name << ", " << some;
      fewer = nodes;
    }
  }
}

TEST(ShallowCalls, OfMoreBlocksThanThereAreOrOfNoDecoderAreRefused) {
  const auto message = [](const char* name, std::int64_t blocks) {
    return refusal_of([&] { return require_network(name).build({.sampling = true, .shallow_blocks = blocks}); });
  };
  EXPECT_EQ(message("adm64", 16), "");
  expect_parts(message("adm64", 17), {"it has 1 to 16"});
  expect_parts(message("sd-vae", 1), {"no decoder with skips"});
}

// In memory of its own from a loop's first node on: a shallow call runs nodes that stand ahead of its writer.
TEST(ShallowCalls, OverwriteNothingThatIsKept) {
  for (const Network& network : networks_with(1)) {
    const auto lives =
        activation_lifetimes(network.graph, network.output_values(), nodes_of_each_call(network), network.kept);
    const Placement placement = place(lives);
    const ValueId kept = network.graph.whole(network.kept.value());
    ASSERT_GT(lives[kept].bytes, 0u);
    for (ValueId id = 0; id < lives.size(); ++id) {
      if (id == kept || lives[id].bytes == 0) continue;
      const bool apart = placement.offsets[id] + lives[id].bytes <= placement.offsets[kept] ||
                         placement.offsets[kept] + lives[kept].bytes <= placement.offsets[id];
      EXPECT_TRUE(apart) << network.name() << ": " << network.graph[id].name;
    }
  }
}

}  // namespace
}  // namespace noisefloor::networks
