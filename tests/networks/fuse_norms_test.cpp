// Norms that convolutions do themselves: which nodes change, and that the network computes the same.
#include "networks/fuse_norms.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::networks {
namespace {

struct NormCounts {
  int norms = 0, coefficients = 0, given = 0, normed = 0, leave_statistics = 0;
  friend bool operator==(const NormCounts&, const NormCounts&) = default;
};
NormCounts count_norms(const Graph& graph) {
  NormCounts counts;
  for (const Node& node : graph.nodes()) {
    if (node.op == find_op("groupnorm")) {
      const auto& p = node.problem.as<groupnorm::Problem>();
      ++(p.coefficients ? counts.coefficients : counts.norms);
      counts.given += p.given();
    }
    if (node.op == find_op("conv2d")) {
      const auto& p = node.problem.as<conv2d::Problem>();
      counts.normed += p.norm != conv2d::Norm::none;
      counts.leave_statistics += p.stats;
      EXPECT_EQ(p.stats, p.patches) << node.text;
    }
  }
  return counts;
}

Network build(const char* name, bool fused, Sizes sizes = {}, DType dtype = DType::bf16) {
  Network network = require_network(name).build({.dtype = dtype, .sizes = sizes});
  if (fused) fuse_norms(network, {.least_bytes = 0, .most_outputs = 1 << 20});
  return network;
}

TEST(fuse_norms, OfAdm64LeavesTheNormsOfAttentionAndOfLayersThatAreNoHalo) {
  const NormCounts plain = count_norms(build("adm64", false).graph), fused = count_norms(build("adm64", true).graph);
  EXPECT_EQ(plain, (NormCounts{.norms = 95}));
  // Attention has 22, blocks that halve the image 3 more (average behind their norm).
  EXPECT_EQ(fused.norms, 22 + 3);
  EXPECT_EQ(fused.coefficients, 95 - fused.norms);
  EXPECT_EQ(fused.normed, fused.coefficients);
  EXPECT_EQ(fused.given, fused.leave_statistics);
  EXPECT_GT(fused.given, 36);  // every block's second norm is of its first convolution
}

TEST(fuse_norms, EveryTensorStaysReadAndWrittenOnce) {
  for (const char* name : {"adm64", "edm-cifar", "digits", "sd15", "sdxl", "sd-vae"}) {
    SCOPED_TRACE(name);
    const Network network = build(name, true);
    std::map<ValueId, int> writers;
    for (const Node& node : network.graph.nodes()) {
      const auto specs = node.op->tensors(node.problem, node.dtype);
      for (std::size_t i = 0; i < specs.size(); ++i) {
        const ValueId value = node.values[i];
        if (specs[i].role == Role::out) ++writers[value];
        if (specs[i].role == Role::out || network.graph[value].kind != Value::Kind::activation) continue;
        EXPECT_EQ(writers[network.graph.whole(value)], 1) << node.name << ' ' << specs[i].name;
      }
    }
    for (const ValueId output : network.output_values()) EXPECT_EQ(writers[output], 1);
  }
}

TEST(fuse_norms, OfASmallTensorStayALaunch) {
  const auto built = [](std::int64_t batch) {
    return count_norms(require_network("adm64").build({.batch = batch, .fuse_norms = true}).graph);
  };
  EXPECT_EQ(built(1), (NormCounts{.norms = 95}));
  const Network many = require_network("adm64").build({.batch = 32, .fuse_norms = true});
  for (const Node& node : many.graph.nodes())
    if (node.op == find_op("groupnorm")) {
      const auto& p = node.problem.as<groupnorm::Problem>();
      if (p.coefficients) {
        EXPECT_GE(2 * p.elements(), FusedNorms{}.least_bytes) << node.text;
      }
    }
  // Of 64x64 alone, seven blocks of two, and the last layer: the block that makes them has 384 outputs.
  EXPECT_EQ(count_norms(many.graph).coefficients, 15);
}

// Images that are no whole patches leave no statistics; fp32 runs from no halo.
TEST(fuse_norms, WhereItCannotNothingChanges) {
  const NormCounts odd = count_norms(build("edm-cifar", true, {.height = 36, .width = 36}).graph);
  EXPECT_EQ(odd.leave_statistics, 0);
  EXPECT_GT(odd.normed, 0);
  EXPECT_EQ(count_norms(build("digits", true, {}, DType::fp32).graph).normed, 0);
}

}  // namespace
}  // namespace noisefloor::networks
