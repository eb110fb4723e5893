// gemm on the host: its oracle against numbers worked out by hand, the host variant against the oracle,
// and the plans of the sm_80 variant.
#include "kernels/gemm/gemm.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/gemm/launchers.h"
#include "tests/support/host_data.h"

namespace noisefloor::gemm {
namespace {

const Op& op() {
  static const Op value = make_op(definition);
  return value;
}

TEST(gemm, OracleGivesTheNumbersWorkedOutByHand) {
  const auto phi = [](double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); };
  // A = [1 2; 3 4], B = [5 6; 7 -8]: A B^T = [17 -9; 39 -11].
  const auto values_of = [&](const std::string& rest, const std::vector<std::vector<double>>& more) {
    const AnyProblem problem = op().parse("m=2,n=2,k=2," + rest);
    HostData data(op(), problem, DType::fp32, 1);
    data.set(0, {1, 2, 3, 4});
    data.set(1, {5, 6, 7, -8});
    for (std::size_t i = 0; i < more.size(); ++i) data.set(2 + i, more[i]);
    return data.reference("d");
  };
  EXPECT_EQ(values_of("bias=0", {}), (std::vector<double>{17, -9, 39, -11}));
  EXPECT_EQ(values_of("scale=2,residual=1", {{1, 10}, {100, 200, 300, 400}}),
            (std::vector<double>{135, 192, 379, 388}));
  const std::vector<double> silu = values_of("act=silu,scale=0.25", {{0, 0}});
  EXPECT_NEAR(silu[0], 4.25 / (1 + std::exp(-4.25)), 1e-12);
  EXPECT_NEAR(silu[3], -2.75 / (1 + std::exp(2.75)), 1e-12);
  const std::vector<double> gelu = values_of("act=gelu,scale=0.125,bias=0", {});
  EXPECT_NEAR(gelu[1], -1.125 * phi(-1.125), 1e-12);
  const std::vector<double> tanh = values_of("act=gelu_tanh,scale=0.125,bias=0", {});
  EXPECT_NEAR(tanh[1], -0.5625 * (1 + std::tanh(0.7978845608028654 * (-1.125 - 0.044715 * 1.423828125))), 1e-12);

  // geglu, n = 1: the value is A times the first row of B, the gate A times the second.
  const AnyProblem gated = op().parse("m=2,n=1,k=2,act=geglu,scale=0.125,residual=1");
  HostData data(op(), gated, DType::fp32, 1);
  data.set(0, {1, 2, 3, 4});
  data.set(1, {5, 6, 7, -8});
  data.set(2, {1, 2});
  data.set(3, {0, 10});
  const std::vector<double> y = data.reference("d");
  EXPECT_NEAR(y[0], (17 / 8.0 + 1) * (-9 / 8.0 + 2) * phi(-9 / 8.0 + 2), 1e-12);
  EXPECT_NEAR(y[1], (39 / 8.0 + 1) * (-11 / 8.0 + 2) * phi(-11 / 8.0 + 2) + 10, 1e-12);
}

// Rows of an image have its shift, behind the bias and before the activation; so do parts of D.
TEST(gemm, ShiftsTheRowsOfAnImage) {
  const auto shifted = [&](const std::string& rest, const std::vector<double>& shift) {
    HostData data(op(), op().parse("m=4,k=1,image_shift=1," + rest), DType::fp32, 1);
    data.set("a", {0, 1, 2, 3});
    for (const auto& [name, value] : {std::pair{"b", 1.0}, std::pair{"bias", 100.0}}) {
      const std::int64_t elements = data.specs[data.index(name)].elements();
      data.set(name, std::vector<double>(static_cast<std::size_t>(elements), value));
    }
    data.set("image_shift", shift);
    return data.reference("d");
  };
  EXPECT_EQ(shifted("n=2,images=2", {10, 20, 30, 40}), (std::vector<double>{110, 120, 111, 121, 132, 142, 133, 143}));
  EXPECT_EQ(shifted("n=1", {-101}), (std::vector<double>{-1, 0, 1, 2}));
  const std::vector<double> silu = shifted("n=1,act=silu,images=4", {-99, -100, -101, -102});
  for (const double y : silu) EXPECT_NEAR(y, 1 / (1 + std::exp(-1.0)), 1e-12);
  std::vector<double> columns(32);
  for (std::size_t i = 0; i < columns.size(); ++i) columns[i] = 1000.0 * static_cast<double>(i);
  const std::vector<double> parts = shifted("n=16,images=2,part_columns=8", columns);
  EXPECT_EQ(parts[8], 101);             // row 1, column 0
  EXPECT_EQ(parts[32], 8100);           // row 0, column 8
  EXPECT_EQ(parts[32 + 3 * 8], 24103);  // row 3, of the second image, column 8
}

// Sums are 1 and 2 before.
TEST(gemm, BlendsItsSumWithAShareOfATensor) {
  const Op& gemm_op = op();
  EXPECT_EQ(gemm_op.tensors(gemm_op.parse("m=2,n=1,k=1,residual=1,blend=1"), DType::bf16)[5].dtype, DType::fp32);
  for (const auto& [share, d] : {std::pair(0.25, std::vector<double>{2, 0}), {1.0, {5, -6}}, {0.0, {1, 2}}})
    by_hand("gemm", "m=2,n=1,k=1,bias=0,residual=1,blend=1",
            {{"a", {3, 4}}, {"b", {1}}, {"residual", {-2, -2}}, {"blend", {5, -6}}, {"share", {share}}}, {{"d", d}});
}

RC_GTEST_PROP(gemm, HostAgreesWithTheOracleOnRandomProblems, ()) {
  // Few rows (dot products), and enough for tiles; columns and depth across the edges of panels, tiles and blocks of k.
  const auto m = *rc::gen::oneOf(rc::gen::inRange(1, 14), rc::gen::inRange(80, 210));
  const auto n = *rc::gen::oneOf(rc::gen::inRange(1, 70), rc::gen::inRange(240, 270));
  const auto k = *rc::gen::oneOf(rc::gen::inRange(1, 70), rc::gen::inRange(250, 530));
  const auto act = *rc::gen::element<std::string>("none", "silu", "gelu", "gelu_tanh", "geglu");
  const auto scale = *rc::gen::element<std::string>("1", "0.5", "-2");
  std::string text = "m=" + std::to_string(m) + ",n=" + std::to_string(n) + ",k=" + std::to_string(k) + ",act=" + act +
                     ",scale=" + scale + ",bias=" + std::to_string(*rc::gen::inRange(0, 2)) +
                     *rc::gen::element<std::string>(",residual=0", ",residual=1", ",residual=1,blend=1");
  if (const int images = std::gcd(m, *rc::gen::inRange(1, m + 1)); act != "geglu" && *rc::gen::arbitrary<bool>())
    text += ",image_shift=1,images=" + std::to_string(images);
  const DType dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
  const AnyProblem problem = op().parse(text);
  HostData data(op(), problem, dtype, *rc::gen::arbitrary<unsigned>());
  RC_LOG() << to_string(dtype) << " " << text;
  RC_ASSERT(data.run_host().ok());
  RC_ASSERT(data.difference() == "");
}

TEST(gemm, ATransposedLayoutAndItsRowSumsByHand) {
  by_hand("gemm", "m=2,n=1,k=3,layout=tn,bias=0,scale=2,to=fp32,row_sums=1",
          {{"a", {1, 2, 3, 4, 5, 6}}, {"b", {1, 10, 100}}}, {{"d", {1062, 1284}}, {"row_sums", {18, 24}}});
}

RC_GTEST_PROP(gemm, OtherLayoutsAreTheProductOfTransposedMatrices, ()) {
  const std::int64_t m = *rc::gen::oneOf(rc::gen::inRange(1, 14), rc::gen::inRange(80, 210));
  const std::int64_t n = *rc::gen::oneOf(rc::gen::inRange(1, 70), rc::gen::inRange(240, 270));
  const std::int64_t k = *rc::gen::oneOf(rc::gen::inRange(1, 70), rc::gen::inRange(250, 530));
  const auto layout = *rc::gen::element<std::string>("nn", "tn");
  const std::string text = "m=" + std::to_string(m) + ",n=" + std::to_string(n) + ",k=" + std::to_string(k) +
                           *rc::gen::element<std::string>(",bias=0", ",scale=-0.5", ",residual=1") +
                           *rc::gen::element<std::string>("", ",to=fp32");
  const DType dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
  HostData other(op(), text + ",layout=" + layout + (layout == "tn" ? ",row_sums=1" : ""), dtype,
                 *rc::gen::arbitrary<unsigned>());
  HostData straight(op(), text, dtype, 1);
  straight.storage = other.storage;
  const auto turn = [&](const char* name, std::int64_t rows) {
    for (std::int64_t i = 0; i < rows * k; ++i)
      straight.set(straight.index(name), i, other.get(name, i % k * rows + i / k));
  };
  if (layout == "tn") turn("a", m);
  turn("b", n);
  RC_LOG() << to_string(dtype) << " " << layout << " " << text;
  RC_ASSERT(other.reference("d") == straight.reference("d"));
  RC_ASSERT(other.run_host().ok());
  RC_ASSERT(other.difference() == "");
}

RC_GTEST_PROP(gemm_sm80_plan, ChosenPlanCoversTheProblemAndFitsTheDevice, ()) {
  Problem p;
  p.m = *rc::gen::oneOf(rc::gen::inRange<std::int64_t>(1, 300), rc::gen::inRange<std::int64_t>(1, 1 << 24));
  p.n = *rc::gen::inRange<std::int64_t>(1, 1 << 16);
  p.k = 8 * *rc::gen::inRange<std::int64_t>(1, 2000);
  p.act = *rc::gen::element(Activation::none, Activation::geglu);
  const std::size_t shared = *rc::gen::element<std::size_t>(99 * 1024, 163 * 1024, 227 * 1024);
  const Sm80Plan plan = choose_sm80_plan(p, {80, *rc::gen::inRange(1, 200), 0, shared});
  const Sm80Shape shape = shape_of(plan.tile);
  RC_ASSERT(plan.tiles_m * shape.block_m >= p.m && (plan.tiles_m - 1) * shape.block_m < p.m);
  const int columns = p.gated() ? shape.block_n / 2 : shape.block_n;
  RC_ASSERT(plan.tiles_n * columns >= p.n && (plan.tiles_n - 1) * columns < p.n);
  RC_ASSERT(static_cast<std::size_t>(shape.shared_bytes()) <= shared);
  RC_ASSERT(plan.tiles() * plan.splits <= kMaxBlocks);
  // Every part of k has at least one step.
  const std::int64_t steps = (p.k + shape.block_k - 1) / shape.block_k;
  const std::int64_t part = (steps + plan.splits - 1) / plan.splits;
  RC_ASSERT(part * plan.splits >= steps && part * (plan.splits - 1) < steps);
  RC_ASSERT((sm80_workspace_bytes(plan) == 0) == (plan.splits == 1));
}

TEST(gemm_sm80_plan, FollowsTheShape) {
  const DeviceInfo h200{90, 132, 50 << 20, 227 * 1024};
  const auto plan = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    Problem p;
    p.m = m, p.n = n, p.k = k;
    return choose_sm80_plan(p, h200);
  };
  EXPECT_EQ(plan(8192, 8192, 8192).tile, Sm80Tile::tall_256x128);
  EXPECT_EQ(plan(1, 768, 768).tile, Sm80Tile::flat_16x32);
  EXPECT_EQ(plan(8192, 8192, 8192).splits, 1);
  EXPECT_GT(plan(64, 64, 1 << 16).splits, 1);  // one tile would leave the other SMs idle
}

}  // namespace
}  // namespace noisefloor::gemm
