// Norms that convolutions do themselves: which nodes change.
#include <gtest/gtest.h>

#include "kernels/conv2d/conv2d.h"
#include "kernels/groupnorm/groupnorm.h"
#include "tests/support/rewritten.h"

namespace noisefloor::networks {
namespace {

struct NormCounts {
  int norms = 0, coefficients = 0, given = 0, normed = 0, leave_statistics = 0;
  friend bool operator==(const NormCounts&, const NormCounts&) = default;
};
NormCounts counted(const char* name, const BuildOptions& options, const std::optional<NormFusion>& which = kEveryNorm) {
  Network network = require_network(name).build(options);
  fuse(network, {.fuse_norms = which});
  NormCounts counts;
  for (const Node& node : network.graph.nodes()) {
    if (node.op->name == "groupnorm") {
      const auto& p = node.problem.as<groupnorm::Problem>();
      ++(p.coefficients ? counts.coefficients : counts.norms);
      counts.given += p.given();
    }
    if (node.op->name == "conv2d") {
      const auto& p = node.problem.as<conv2d::Problem>();
      counts.normed += p.norm != conv2d::Norm::none;
      counts.leave_statistics += p.stats;
      EXPECT_EQ(p.stats, p.patches) << node.text;
    }
  }
  return counts;
}

TEST(FuseNorms, OfAdm64LeavesTheNormsOfAttentionAndOfLayersThatAreNoHalo) {
  EXPECT_EQ(counted("adm64", {}, std::nullopt), (NormCounts{.norms = 95}));
  const NormCounts fused = counted("adm64", {});
  // Attention has 22, blocks that halve the image 3 more (average behind their norm).
  EXPECT_EQ(fused.norms, 22 + 3);
  EXPECT_EQ(fused.coefficients, 95 - fused.norms);
  EXPECT_EQ(fused.normed, fused.coefficients);
  EXPECT_EQ(fused.given, fused.leave_statistics);
  EXPECT_GT(fused.given, 36);  // every block's second norm is of its first convolution
}

TEST(FuseNorms, OfASmallTensorAreNotTried) {
  EXPECT_EQ(counted("adm64", {.batch = 1}, NormFusion{}), (NormCounts{.norms = 95}));
  // Of 64x64 alone, seven blocks of two, and the last layer: the block that makes them has 384 outputs.
  EXPECT_EQ(counted("adm64", {.batch = 32}, NormFusion{}).coefficients, 15);
}

// Who decides is asked once a norm, with the nodes on both sides; the others of the network stay what they are.
TEST(FuseNorms, AreThoseThatPay) {
  int asked = 0;
  NormFusion every_other = kEveryNorm;
  every_other.pays = [&](const std::vector<CountedProblem>& apart, const std::vector<CountedProblem>& fused) {
    EXPECT_EQ(apart.size(), fused.size());
    for (std::size_t i = 0; i < apart.size(); ++i) {
      EXPECT_EQ(apart[i].op, fused[i].op);
      EXPECT_NE(apart[i].text, fused[i].text);
    }
    EXPECT_EQ(fused.back().op->name, "groupnorm");
    EXPECT_NE(fused.back().text.find("coefficients=1"), std::string::npos);
    return ++asked % 2 == 0;
  };
  const NormCounts all = counted("adm64", {}), some = counted("adm64", {}, every_other);
  EXPECT_EQ(asked, all.coefficients);
  EXPECT_EQ(some.coefficients, all.coefficients / 2);
  EXPECT_EQ(some.normed, some.coefficients);
  EXPECT_EQ(some.norms, 95 - some.coefficients);
}

// Images that are no whole patches leave no statistics; fp32 runs from no halo.
TEST(FuseNorms, WhereItCannotNothingChanges) {
  const NormCounts odd = counted("edm-cifar", {.sizes = {.height = 36, .width = 36}});
  EXPECT_EQ(odd.leave_statistics, 0);
  EXPECT_GT(odd.normed, 0);
  EXPECT_EQ(counted("digits", {.dtype = DType::fp32}).normed, 0);
}

}  // namespace
}  // namespace noisefloor::networks
