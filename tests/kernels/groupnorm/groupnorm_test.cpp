// groupnorm on the host: the oracle against numbers worked out by hand and against itself.
#include "kernels/groupnorm/groupnorm.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/groupnorm/slabs.h"
#include "kernels/resample/resample.h"
#include "tests/support/host_data.h"

namespace noisefloor::groupnorm {
namespace {

const Op& op() {
  static const Op value = make_op(definition);
  return value;
}

rc::Gen<std::string> problem_texts() {
  return rc::gen::exec([] {
    const auto groups = *rc::gen::inRange<int>(1, 9);
    const auto width = *rc::gen::inRange<int>(1, 80);
    const auto hw = *rc::gen::oneOf(rc::gen::inRange<int>(1, 9), rc::gen::inRange<int>(100, 400));
    const auto n = *rc::gen::inRange<int>(1, 4);
    const auto fusion = *rc::gen::element<std::string>("none", "silu", "silu+ss");
    return "n=" + std::to_string(n) + ",hw=" + std::to_string(hw) + ",channels=" + std::to_string(groups * width) +
           ",groups=" + std::to_string(groups) + ",fusion=" + fusion + ",stats=1" +
           (fusion == "silu+ss" && *rc::gen::arbitrary<bool>() ? ",packed=1" : "");
  });
}

TEST(groupnorm, GivesTheNumbersWorkedOutByHand) {
  // One image, two rows, four channels in two groups. Group 0: 1 3 / 5 7, mean 4, variance 5. Group 1: all 2, variance
  // 0: beta, scaled and shifted.
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  const double rstd = 1 / std::sqrt(5 + 1e-6), four = silu(5 * 2 - 9);
  by_hand("groupnorm", "n=1,hw=2,channels=4,groups=2,fusion=silu+ss,eps=1e-6,stats=1",
          {{"x", {1, 3, 2, 2, 5, 7, 2, 2}},
           {"gamma", {1, 2, 3, 4}},
           {"beta", {0, 1, 0, 5}},
           {"scale", {1, 0, 0, 1}},
           {"shift", {0, 0, 0, -9}}},
          {{"y", {silu(-6 * rstd), silu(-2 * rstd + 1), 0, four, silu(2 * rstd), silu(6 * rstd + 1), 0, four}},
           {"mean", {4, 2}},
           {"rstd", {rstd, 1e3}}});
  // One channel, two rows of four pixels, all of one group: 0 2 4 6 / 0 2 4 6, mean 3, variance 5.
  const double away = 4 / std::sqrt(5.0);
  by_hand("groupnorm", "n=1,hw=8,channels=1,groups=1,eps=1e-12,down_w=4",
          {{"x", {0, 2, 4, 6, 0, 2, 4, 6}}, {"gamma", {2}}, {"beta", {1}}},
          {{"y", {1 - away, 1 + away}}, {"x_down", {1, 5}}});
}

TEST(groupnorm, PackedScaleAndShiftAreTheTwoHalvesOfARow) {
  const std::int64_t n = 3, channels = 10;
  const char* text = "n=3,hw=5,channels=10,groups=2,fusion=silu+ss,stats=1";
  const AnyProblem apart = op().parse(text), packed = op().parse(std::string(text) + ",packed=1");
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    HostData two(op(), apart, dtype, 5), one(op(), packed, dtype, 6);
    for (const std::size_t tensor : {0u, 1u, 2u}) one.storage[tensor] = two.storage[tensor];
    ASSERT_STREQ(one.specs[3].name, "scale_shift");
    ASSERT_EQ(one.specs[3].shape, (std::vector<std::int64_t>{n, 2 * channels}));
    for (std::int64_t image = 0; image < n; ++image)
      for (std::int64_t c = 0; c < 2 * channels; ++c)
        store_element(dtype, one.storage[3].data(), image * 2 * channels + c,
                      load_element(dtype, two.storage[c < channels ? 3 : 4].data(), image * channels + c % channels));
    for (std::size_t output = 4; output < 7; ++output) EXPECT_EQ(one.reference(output), two.reference(output + 1));
    ASSERT_TRUE(one.run_host().ok());
    ASSERT_TRUE(two.run_host().ok());
    for (std::size_t output = 4; output < 7; ++output) EXPECT_EQ(one.storage[output], two.storage[output + 1]);
  }
}

// The problem with coefficients in the place of y, of the same inputs.
HostData coefficients_of(const HostData& data, const std::string& text) {
  HostData other(op(), text + ",coefficients=1", data.dtype, 0);
  for (std::size_t i = 0; i < other.specs.size() && other.specs[i].role == Role::in; ++i)
    other.storage[i] = data.storage[data.index(other.specs[i].name)];
  return other;
}

TEST(groupnorm, CoefficientsAppliedToXGiveY) {
  EXPECT_TRUE(rc::check([] {
    std::string text = *problem_texts();
    const auto given = *rc::gen::element<std::string>("none", "given", "quarters");
    if (op().parse(text).as<Problem>().hw % 4 == 0 || given != "quarters") text += ",slab_stats=" + given;
    const HostData data(op(), text, *rc::gen::element(DType::bf16, DType::fp16, DType::fp32),
                        *rc::gen::arbitrary<unsigned>());
    HostData other = coefficients_of(data, text);
    RC_ASSERT(other.run_host().ok());
    RC_ASSERT(other.difference() == "");
    RC_ASSERT(other.reference("mean") == data.reference("mean"));
    RC_ASSERT(other.reference("rstd") == data.reference("rstd"));

    const Problem& p = data.problem.as<Problem>();
    const std::vector<double> y = data.reference("y"), ab = other.reference("coefficients");
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto element = static_cast<std::int64_t>(i);
      const auto at = static_cast<std::size_t>(element / (p.hw * p.channels) * 2 * p.channels + element % p.channels);
      const double value = data.get("x", element) * ab[at] + ab[at + static_cast<std::size_t>(p.channels)];
      const double wanted = p.fusion == Fusion::none ? value : value / (1 + std::exp(-value));
      RC_ASSERT(std::abs(y[i] - wanted) <= 1e-9 * (1 + std::abs(wanted)));
    }
  }));
}

// The problem's x as one tensor, split behind each row's first channels into x and skip of `data`.
void split(const HostData& whole, HostData& data) {
  const auto& p = data.problem.as<Problem>();
  for (std::int64_t i = 0; i < p.elements(); ++i) {
    const std::int64_t pixel = i / p.channels, c = i % p.channels - p.x_channels();
    const double value = whole.get("x", i);
    if (c < 0)
      data.set(data.index("x"), pixel * p.x_channels() + c + p.x_channels(), value);
    else
      data.set(data.index("skip"), pixel * p.skip_channels + c, value);
  }
  for (const TensorSpec& spec : whole.specs)
    if (spec.role == Role::in && std::string(spec.name) != "x")
      data.storage[data.index(spec.name)] = whole.storage[whole.index(spec.name)];
}

TEST(groupnorm, OfASkipIsThatOfTheConcatenation) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = *problem_texts();
    const std::int64_t channels = op().parse(text).as<Problem>().channels;
    if (channels < 2) return;
    const DType dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
    HostData whole(op(), text, dtype, *rc::gen::arbitrary<unsigned>());
    HostData two(op(), text + ",skip_channels=" + std::to_string(*rc::gen::inRange<std::int64_t>(1, channels)), dtype,
                 0);
    split(whole, two);
    RC_ASSERT(whole.run_host().ok());
    RC_ASSERT(two.run_host().ok());
    for (const char* output : {"y", "mean", "rstd"}) {
      RC_ASSERT(two.reference(output) == whole.reference(output));
      RC_ASSERT(two.storage[two.index(output)] == whole.storage[whole.index(output)]);
    }
  }));
}

TEST(groupnorm, HostKeepsItsBitsWhenTheMeanIsFarOffZero) {
  // E[x^2] - E[x]^2 in float would be off by 1e6 * 2^-24 * 1000, six percent of the variance.
  const AnyProblem problem = op().parse("n=1,hw=1000,channels=32,groups=4,stats=1");
  HostData data(op(), problem, DType::fp32, 3);
  for (std::int64_t i = 0; i < data.specs[0].elements(); ++i) data.set(0, i, data.get(0, i) + 997);
  ASSERT_TRUE(data.run_host().ok());
  EXPECT_EQ(data.difference(3e-4), "");  // 1000 stddev: 2^-24 * 1000 in x, a few roundings
}

TEST(groupnorm, SlabsCoverEveryRowOnce) {
  EXPECT_TRUE(rc::check([] {
    Problem p;
    p.n = *rc::gen::inRange<int>(1, 100);
    p.hw = *rc::gen::inRange<int>(1, 200000);
    p.channels = *rc::gen::inRange<int>(1, 5000);
    const int lanes = *rc::gen::element(1, 4, 8);
    const SlabPlan plan = plan_slabs(p, lanes, *rc::gen::inRange<int>(1, 200));
    RC_ASSERT(plan.slab_rows * plan.slabs >= p.hw);
    RC_ASSERT(plan.slab_rows * (plan.slabs - 1) < p.hw);
    RC_ASSERT(static_cast<std::int64_t>(plan.tiles) * plan.tile_columns * lanes >= p.channels);
    RC_ASSERT(plan.threads() >= 1 && plan.threads() <= kSlabThreads);
  }));
}

// down_w, against the norm and two averages in sequence, and numbers worked out by hand.

// The op's problem and the two averages in sequence, as resample makes them: rounded alike on the way.
TEST(groupnorm_down, IsTheNormAndTwoAveragesBehindIt) {
  const Op average = make_op(resample::definition);
  EXPECT_TRUE(rc::check([&] {
    const auto rows = *rc::gen::inRange<std::int64_t>(1, 5), half_w = *rc::gen::inRange<std::int64_t>(1, 20);
    const auto fusion = *rc::gen::element<std::string>("none", "silu", "silu+ss");
    auto p = op().parse("n=" + std::to_string(*rc::gen::inRange(1, 4)) + ",hw=4,channels=1,groups=1,stats=1,fusion=" +
                        fusion + (fusion == "silu+ss" && *rc::gen::arbitrary<bool>() ? ",packed=1" : ""))
                 .as<Problem>();
    p.groups = *rc::gen::inRange(1, 9);
    p.channels = p.groups * *rc::gen::inRange(1, 80);
    p.hw = 4 * rows * half_w;
    RC_PRE(p.group_size() >= 32);  // means of fewer may be all but nothing
    if (*rc::gen::arbitrary<bool>()) p.slab_stats = SlabStats::given;
    const DType dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
    HostData whole(op(), AnyProblem(p), dtype, *rc::gen::arbitrary<unsigned>());
    p.down_w = 2 * half_w;
    HostData down(op(), AnyProblem(p), dtype, 0);
    for (const TensorSpec& spec : whole.specs)
      if (spec.role == Role::in) down.storage[down.index(spec.name)] = whole.storage[whole.index(spec.name)];
    RC_ASSERT(whole.run_host().ok());
    RC_ASSERT(down.run_host().ok());
    RC_ASSERT(down.difference() == "");
    for (const char* output : {"mean", "rstd"})
      RC_ASSERT(down.storage[down.index(output)] == whole.storage[whole.index(output)]);
    for (const auto& [from, to] : {std::pair{"y", "y"}, {"x", "x_down"}}) {
      const resample::Problem halves{
          .op = resample::Operation::average_down2, .n = p.n, .h = 2 * rows, .w = p.down_w, .channels = p.channels};
      HostData after(average, AnyProblem(halves), dtype, 0);
      after.storage[after.index("x")] = whole.storage[whole.index(from)];
      RC_ASSERT(after.run_host().ok());
      for (std::int64_t i = 0; i < p.n * p.hw / 4 * p.channels; ++i) {
        const double wanted = after.get(after.index("y"), i), found = down.get(down.index(to), i);
        RC_ASSERT(std::abs(found - wanted) <= 5e-6 + 2 * unit_roundoff(dtype) * std::abs(wanted));
      }
    }
  }));
}

}  // namespace
}  // namespace noisefloor::groupnorm
