// Graphs: mistakes of a builder are named, weights are shared, problems counted.
#include "networks/graph.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "kernels/core/fields.h"
#include "tests/support/refusal.h"

namespace noisefloor::networks {
namespace {

constexpr const char* kGemm = "m=2,n=4,k=8,bias=0";

struct Product {
  Graph graph;
  ValueId a = graph.input("a", {2, 8}, DType::fp32);
  ValueId b = graph.weight({"w", {4, 8}}, {4, 8}, DType::fp32);
};

TEST(Graph, MistakesOfABuilderNameTheNode) {
  Product p;
  const ValueId wrong = p.graph.input("wrong", {3, 8}, DType::fp32), half = p.graph.input("half", {2, 8}, DType::bf16);
  const auto says = [&](const char* op, const Bindings& inputs, const char* part) {
    const auto add = [&] { return p.graph.add("mid", op, kGemm, DType::fp32, inputs); };
    expect_parts(refusal_of<std::logic_error>(add), {"node mid: ", part});
  };
  says("gem", {}, "there is no op gem");
  says("gemm", {{"a", p.a}}, "needs a tensor b");
  says("gemm", {{"a", wrong}, {"b", p.b}}, "not wrong fp32 [3, 8]");
  says("gemm", {{"a", half}, {"b", p.b}}, "not half bf16");
  says("gemm", {{"a", p.a}, {"b", p.b}, {"c", p.a}}, "no tensor for one");
  EXPECT_TRUE(p.graph.nodes().empty());
}

TEST(Graph, TellsSharesOfAWeightApart) {
  Graph graph;
  WeightSource spatial{"w", {4, 8}}, temporal = spatial;
  spatial.share = {"mix", false};
  temporal.share = {"mix", true};
  const ValueId a = graph.weight(spatial, {4, 8}, DType::fp32), b = graph.weight(temporal, {4, 8}, DType::fp32);
  EXPECT_NE(a, b);
  EXPECT_EQ(graph.weight(temporal, {4, 8}, DType::fp32), b);
  EXPECT_NE(graph.weight({"w", {4, 8}}, {4, 8}, DType::fp32), b);
  // The factor is of the checkpoint, and no node's.
  int unread = 0;
  for (const Value& value : graph.values()) unread += value.kind == Value::Kind::unread && value.name == "mix" ? 1 : 0;
  EXPECT_EQ(unread, 1);
  WeightSource number{"mix", {1}}, share = number;
  share.sigmoid = true;
  EXPECT_NE(graph.weight(share, {1}, DType::fp32), graph.weight(number, {1}, DType::fp32));
}

TEST(Graph, HasAConstantOnce) {
  Graph graph;
  const ValueId frames = graph.constant("frames", {6}, DType::fp32, 3);
  EXPECT_EQ(graph.constant("frames", {6}, DType::fp32, 3), frames);
  EXPECT_NE(graph.constant("zeros", {6}, DType::fp32, 1), frames);
  EXPECT_EQ(graph[frames].period, 3);
}

TEST(Graph, AWeightIsOneValueADtypeAndPart) {
  Graph graph;
  const WeightSource source{"w", {6, 8}};
  const ValueId whole = graph.weight(source, {6, 8}, DType::fp32);
  EXPECT_EQ(graph.weight(source, {6, 8}, DType::fp32), whole);
  EXPECT_NE(graph.weight(source, {6, 8}, DType::bf16), whole);
  const ValueId part = graph.weight({"w", {6, 8}, WeightSource::Layout::plain, 3}, {3, 8}, DType::fp32);
  EXPECT_NE(part, whole);
  EXPECT_EQ(graph[part].elements(), 24);
  EXPECT_THROW(graph.weight({"w", {6, 8}}, {5, 8}, DType::fp32), std::logic_error);
  WeightSource stacked = source;
  stacked.below = {{"v", 6}, {"u", 2}};
  EXPECT_EQ(stacked.all_rows(), 14);
  EXPECT_EQ(stacked.tensors(), (std::vector<WeightSource::Below>{{"w", 6}, {"v", 6}, {"u", 2}}));
  const ValueId all = graph.weight(stacked, {14, 8}, DType::fp32);
  EXPECT_NE(all, whole);
  EXPECT_EQ(graph.weight(stacked, {14, 8}, DType::fp32), all);
  EXPECT_THROW(graph.weight(stacked, {6, 8}, DType::fp32), std::logic_error);
}

TEST(Graph, APartLiesInAWholeActivation) {
  Product p;
  const ValueId d = p.graph.add("product", "gemm", kGemm, DType::fp32, {{"a", p.a}, {"b", p.b}}).at(0);
  const ValueId part = p.graph.part(d, "half", 4, {1, 4});
  EXPECT_EQ(p.graph.whole(part), d);
  EXPECT_EQ(p.graph.whole(d), d);
  EXPECT_EQ(p.graph[part].dtype, DType::fp32);
  EXPECT_THROW(p.graph.part(d, "beyond", 5, {1, 4}), std::logic_error);
  const ValueId last = p.graph.part(part, "of a part", 3, {1, 1});
  EXPECT_EQ(p.graph.whole(last), d);
  EXPECT_EQ(p.graph[last].part->first, 7);
  EXPECT_THROW(p.graph.part(part, "beyond the part", 3, {1, 2}), std::logic_error);
  EXPECT_THROW(p.graph.part(p.a, "of an input", 0, {1, 4}), std::logic_error);
}

TEST(Graph, ANodeWritesWhereItIsTold) {
  Product p;
  const ValueId state = p.graph.state("state", {20}, DType::fp32), place = p.graph.part(state, "place", 8, {2, 4});
  EXPECT_EQ(p.graph[place].kind, Value::Kind::state);
  const auto add = [&](const Bindings& outputs) {
    return p.graph.add("mid", "gemm", kGemm, DType::fp32, {{"a", p.a}, {"b", p.b}}, outputs);
  };
  EXPECT_EQ(add({{"d", place}}), std::vector{place});
  EXPECT_EQ(p.graph.nodes().back().value("d"), place);
  expect_parts(refusal_of<std::logic_error>([&] { add({{"d", state}}); }), {"node mid: ", "state", "[20]"});
  expect_parts(refusal_of<std::logic_error>([&] { add({{"e", place}}); }), {"node mid: ", "no tensor for one"});
}

TEST(Graph, ACallOfALoopTakesItsRows) {
  Product p;
  const ValueId d = p.graph.add("product", "gemm", kGemm, DType::fp32, {{"a", p.a}, {"b", p.b}}).at(0);
  EXPECT_EQ(p.graph.of_the_call(d, 0), d);
  const ValueId row = p.graph.of_the_call(d, 2);
  EXPECT_EQ(p.graph[row].shape, (std::vector<std::int64_t>{1, 4}));
  EXPECT_EQ(p.graph[row].part->first_of(0), 0);
  EXPECT_EQ(p.graph[row].part->first_of(1), 4);
  EXPECT_THROW(p.graph.part(row, "of a part that moves", 0, {1, 1}), std::logic_error);
}

}  // namespace
}  // namespace noisefloor::networks
