// A node taken apart is the problems that stand in it. tests/cli/test_problems.py holds whole networks to diffusers'.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "networks/layers.h"
#include "networks/network.h"

namespace noisefloor::networks {
namespace {

using Counts = std::map<std::string, long>;

Counts of(const Graph& graph) {
  Counts counts;
  for (const CountedProblem& counted : count_unfused(graph))
    counts[counted.op->name + " " + counted.text] += counted.count;
  return counts;
}

// Of one node, whose inputs are made as its op takes them; `source`, where there is one, is its second input's.
Counts unfused(const std::string& op_name, const std::string& problem, const WeightSource& source = {}) {
  Graph graph;
  const Op& op = *find_op(op_name);
  std::map<std::string, ValueId> inputs;
  for (const TensorSpec& spec : op.tensors(op.parse(problem), DType::bf16))
    if (spec.role != Role::out)
      inputs[spec.name] = inputs.size() == 1 && !source.name.empty() ? graph.weight(source, spec.shape, spec.dtype)
                                                                     : graph.input(spec.name, spec.shape, spec.dtype);
  graph.add("node", op_name, problem, DType::bf16, inputs);
  EXPECT_EQ(count_unfused(graph).front().dtype, DType::bf16);
  return of(graph);
}

TEST(Unfused, Products) {
  EXPECT_EQ(unfused("gemm", "m=6,n=12,k=8,bias=0", {.name = "q", .file = {4, 8}, .below = {{"k", 4}, {"v", 4}}}),
            (Counts{{"gemm m=6,n=4,k=8,bias=0", 3}}));
  EXPECT_EQ(unfused("gemm", "m=6,n=12,k=8,act=geglu,residual=1"), (Counts{{"gemm m=6,n=24,k=8", 1},
                                                                          {"elementwise op=geglu,hw=6,channels=12", 1},
                                                                          {"elementwise op=add,hw=6,channels=12", 1}}));
  EXPECT_EQ(unfused("gemm", "m=6,n=12,k=8,act=silu,scale=2"),
            (Counts{{"gemm m=6,n=12,k=8,scale=2", 1}, {"elementwise op=silu,hw=6,channels=12", 1}}));
  EXPECT_EQ(unfused("gemm", "m=6,n=12,k=8,image_shift=1,images=3,residual=1"),
            (Counts{{"gemm m=6,n=12,k=8", 1}, {"elementwise op=add,hw=6,channels=12", 1}}));
  EXPECT_EQ(unfused("elementwise", "op=silu,n=6,hw=1,channels=12"),
            (Counts{{"elementwise op=silu,hw=6,channels=12", 1}}));
}

TEST(Unfused, Convolutions) {
  EXPECT_EQ(unfused("conv2d", "n=2,h=4,w=5,cin=8,cout=16,upsample=1,act=relu,residual=1,gain=0.5,stats=1"),
            (Counts{{"resample op=nearest_up2,n=2,h=4,w=5,channels=8", 1},
                    {"conv2d n=2,h=8,w=10,cin=8,cout=16", 1},
                    {"elementwise op=relu,hw=160,channels=16", 1},
                    {"elementwise op=add,hw=160,channels=16,scale=0.5", 1}}));
  EXPECT_EQ(unfused("conv2d", "n=2,h=4,w=6,cin=8,cout=16,stride=2,image_shift=1,residual=1"),
            (Counts{{"conv2d n=2,h=4,w=6,cin=8,cout=16,stride=2", 1}, {"elementwise op=add,hw=12,channels=16", 1}}));
  EXPECT_EQ(unfused("conv2d", "n=2,h=4,w=5,cin=8,cout=16,kernel=1,bias=0"), (Counts{{"gemm m=40,n=16,k=8,bias=0", 1}}));
  EXPECT_EQ(unfused("conv3d_temporal", "batch=2,frames=3,hw=4,cin=8,cout=16,image_shift=1,residual=1"),
            (Counts{{"conv3d_temporal batch=2,frames=3,hw=4,cin=8,cout=16", 1},
                    {"elementwise op=add,hw=24,channels=16", 1}}));
}

TEST(Unfused, NormsAndAttention) {
  EXPECT_EQ(unfused("groupnorm", "n=2,hw=20,channels=8,groups=4,fusion=silu"),
            (Counts{{"groupnorm n=2,hw=20,channels=8,groups=4", 1}, {"elementwise op=silu,hw=40,channels=8", 1}}));
  EXPECT_EQ(unfused("groupnorm", "n=2,hw=20,channels=8,groups=4,slab_stats=given,coefficients=1"),
            (Counts{{"groupnorm n=2,hw=20,channels=8,groups=4", 1}}));
  EXPECT_EQ(unfused("groupnorm", "n=2,hw=20,channels=8,groups=4,fusion=silu+ss,packed=1,stats=1"),
            (Counts{{"groupnorm n=2,hw=20,channels=8,groups=4", 1},
                    {"elementwise op=silu_fma,n=2,hw=20,channels=8,broadcast=1", 1}}));
  EXPECT_EQ(unfused("attention", "batch=2,heads=3,seq_q=5,seq_kv=5,dim=16,layout=packed_3hd"),
            (Counts{{"attention batch=2,heads=3,seq_q=5,seq_kv=5,dim=16", 1}}));
  EXPECT_EQ(unfused("temporal_attention", "batch=2,frames=5,hw=7,heads=3,dim=16,layout=packed_3hd"),
            (Counts{{"attention batch=14,heads=3,seq_q=5,seq_kv=5,dim=16", 1}}));
  EXPECT_EQ(unfused("layernorm", "rows=6,channels=8"), (Counts{{"layernorm rows=6,channels=8", 1}}));
}

// Gemm's, and one whose share is in weights.
TEST(Unfused, ABlendIsASum) {
  Graph graph;
  Layers layers(graph, 2, DType::bf16);
  const ValueId x = graph.input("x", {6, 8}, DType::bf16);
  const ValueId y = graph.input("y", {6, 16}, DType::bf16), z = graph.input("z", {6, 16}, DType::bf16);
  layers.linear("proj", {x, 3, 1, 8}, 16, {.residual = y, .blend = Blend{z, "mix"}});
  EXPECT_EQ(of(graph), (Counts{{"gemm m=6,n=16,k=8", 1}, {"elementwise op=add,hw=6,channels=16", 2}}));
  EXPECT_EQ(unfused("conv3d_temporal", "batch=2,frames=3,hw=4,cin=8,cout=16,residual=1",
                    {.name = "conv", .file = {16, 8, 3, 1, 1}, .share = WeightSource::Share{"mix"}}),
            (Counts{{"conv3d_temporal batch=2,frames=3,hw=4,cin=8,cout=16", 1},
                    {"elementwise op=add,hw=24,channels=16", 2}}));
}

TEST(Unfused, CopiesOfRowsAndBackToOurLayoutAreNone) {
  Graph graph;
  Layers layers(graph, 2, DType::bf16);
  const Image rows{graph.input("rows", {2, 8}, DType::bf16), 1, 1, 8};
  layers.repeated("rows", rows, 14);
  EXPECT_EQ(of(graph), Counts{});
  layers.concat("cat", rows, {graph.input("other", {2, 8}, DType::bf16), 1, 1, 8});
  layers.channels_first_and_back("copy", {graph.input("x", {2, 4, 5, 8}, DType::bf16), 4, 5, 8});
  EXPECT_EQ(of(graph), (Counts{{"resample op=concat,n=2,h=1,w=1,channels=8,skip_channels=8", 1},
                               {"elementwise op=nhwc_to_nchw,n=2,hw=20,channels=8", 1}}));
}

// One in each of 36 residual blocks, behind that between the two layers.
TEST(Unfused, AnOriginalActivatesItsEmbeddingInEachBlock) {
  for (const bool conditional : {true, false}) {
    const auto silu_of = [&](bool original) {
      const Network network =
          require_network("adm64").build({.batch = 2, .conditional = conditional, .original = original});
      return of(network.graph).at("elementwise op=silu,hw=2,channels=768");
    };
    EXPECT_EQ(silu_of(true), 1 + 36);
    EXPECT_EQ(silu_of(false), 2);
  }
}

}  // namespace
}  // namespace noisefloor::networks
