// conv2d on the host: its oracle against numbers worked out by hand and against other ways to the same.
#include "kernels/conv2d/conv2d.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/groupnorm/groupnorm.h"
#include "tests/support/host_data.h"

namespace noisefloor::conv2d {
namespace {

const Op& op() {
  static const Op value = make_op(definition);
  return value;
}

// Taps 1..9 over a 2x2 image [1 10; 100 1000]: which tap meets which pixel can be read off the digits.
TEST(conv2d, OracleGivesTheNumbersWorkedOutByHand) {
  const std::vector<double> taps{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto values = [&](const std::string& rest,
                          const std::vector<std::pair<std::string, std::vector<double>>>& more) {
    HostData data(op(), op().parse("n=1,h=2,w=2,cin=1,cout=1," + rest), DType::fp32, 1);
    data.set("x", {1, 10, 100, 1000});
    data.set("w", taps);
    for (const auto& [name, numbers] : more) data.set(name, numbers);
    return data.reference("y");
  };
  EXPECT_EQ(values("bias=0", {}), (std::vector<double>{9865, 8754, 6532, 5421}));
  EXPECT_EQ(values("bias=0,stride=2", {}), (std::vector<double>{9865}));
  EXPECT_EQ(values("bias=1,affine=1,image_shift=1,residual=1,gain=2",
                   {{"bias", {1}}, {"scale", {0.5}}, {"shift", {3}}, {"image_shift", {4}}, {"residual", {1, 2, 3, 4}}}),
            (std::vector<double>{2 * (4933 + 7 + 1), 2 * (4377.5 + 7 + 2), 2 * (3266.5 + 7 + 3), 2 * (2711 + 7 + 4)}));
  EXPECT_EQ(values("bias=1,act=relu", {{"bias", {-6000}}}), (std::vector<double>{3865, 2754, 532, 0}));
  EXPECT_NEAR(values("bias=1,act=silu", {{"bias", {-9864}}})[0], 1 / (1 + std::exp(-1.0)), 1e-12);
  // Scaled up, the image is [1 1 10 10; 1 1 10 10; 100 ...]: its corner sees taps 5, 6, 8, 9 on pixels of 1.
  const std::vector<double> up = values("bias=0,upsample=1", {});
  ASSERT_EQ(up.size(), 16u);
  EXPECT_EQ(up[0], 5 + 6 + 8 + 9);
  EXPECT_EQ(up[5], 1 + 2 + 4 + 5 + 10 * (3 + 6) + 100 * (7 + 8) + 1000 * 9);
  EXPECT_EQ(up[15], 1000 * (1 + 2 + 4 + 5));
}

TEST(conv2d, StatisticsAreThoseOfTheStoredSlabs) {
  // 1x1, weight 1, no bias: y is x. 9 x 9 pixels are slabs of 64 and 17.
  HostData data(op(), op().parse("n=2,h=9,w=9,cin=1,cout=1,kernel=1,bias=0,stats=1"), DType::fp32, 3);
  data.set("w", {1});
  const std::vector<double> mean = data.reference("mean"), m2 = data.reference("m2");
  ASSERT_EQ(mean.size(), 4u);
  double sum = 0, squares = 0;
  for (int i = 64; i < 81; ++i) sum += data.get("x", 81 + i);
  for (int i = 64; i < 81; ++i) squares += std::pow(data.get("x", 81 + i) - sum / 17, 2);
  EXPECT_NEAR(mean[3], sum / 17, 1e-12);
  EXPECT_NEAR(m2[3], squares, 1e-12);
  // Four phases: the second holds pixels of even row and odd column.
  HostData up(op(), op().parse("n=1,h=1,w=2,cin=1,cout=1,bias=0,upsample=1,stats=1"), DType::fp32, 4);
  const std::vector<double> y = up.reference("y");  // 2 x 4
  ASSERT_EQ(up.reference("mean").size(), 4u);
  EXPECT_NEAR(up.reference("mean")[1], (static_cast<float>(y[1]) + static_cast<float>(y[3])) / 2.0, 1e-7);
}

// What a block of a network adds by a launch of its own: a 1x1 convolution of the concatenation, at the output's
// pixels.
TEST(conv2d, ASecondSourceIsA1x1OfItsConcatenation) {
  for (const char* stride : {"1", "2"}) {
    const std::string shape = "n=2,h=5,w=4,cin=3,cout=6,bias=0,stride=" + std::string(stride);
    HostData both(op(), op().parse(shape + ",side=2,side_skip=3"), DType::fp32, 7);
    HostData taps(op(), op().parse(shape), DType::fp32, 1);
    const auto p = both.problem.as<Problem>();
    HostData beside(op(),
                    op().parse("n=2,cin=5,cout=6,bias=0,kernel=1,h=" + std::to_string(p.out_h()) +
                               ",w=" + std::to_string(p.out_w())),
                    DType::fp32, 2);
    const auto copy = [&](HostData& to, const char* name, const char* from) {
      to.storage[to.index(name)] = both.storage[both.index(from)];
    };
    copy(taps, "x", "x"), copy(taps, "w", "w"), copy(beside, "w", "w_side");
    const std::int64_t pixels = 2 * p.out_h() * p.out_w();
    for (std::int64_t pixel = 0; pixel < pixels; ++pixel)
      for (std::int64_t c = 0; c < 5; ++c)
        beside.set(beside.index("x"), pixel * 5 + c,
                   c < 2 ? both.get("side", pixel * 2 + c) : both.get("side_skip", pixel * 3 + c - 2));
    const auto sums = taps.reference("y"), more = beside.reference("y"), wanted = both.reference("y");
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(wanted[i], sums[i] + more[i], 1e-12);
  }
}

TEST(conv2d, ASecondSourceStandsInFrontOfAllElse) {
  by_hand("conv2d", "n=1,h=1,w=2,cin=1,cout=1,kernel=1,side=1,side_skip=1,act=relu,affine=1,residual=1,gain=2",
          {{"x", {1, 2}},
           {"w", {3}},
           {"side", {4, 5}},
           {"side_skip", {6, -70}},
           {"w_side", {7, 8}},
           {"bias", {9}},
           {"scale", {0.5}},
           {"shift", {1}},
           {"residual", {10, 20}}},
          {{"y", {2 * ((3 + 28 + 48 + 9) * 0.5 + 1 + 10), 2 * 20}}});
}

// What a block of a network does in two launches: a residual of half the size goes through nearest_up2 first.
TEST(conv2d, AResidualOfHalfTheSizeIsRepeated) {
  for (const char* stride : {"1", "2"}) {
    const std::string shape = "n=3,h=8,w=12,cin=2,cout=5,act=silu,gain=0.5,residual=1,stride=" + std::string(stride);
    HostData halved(op(), op().parse(shape + ",residual_upsample=1"), DType::fp32, 7);
    HostData whole(op(), op().parse(shape), DType::fp32, 1);
    for (const char* name : {"x", "w", "bias"}) whole.storage[whole.index(name)] = halved.storage[halved.index(name)];
    const auto p = whole.problem.as<Problem>();
    const std::int64_t high = p.out_h(), wide = p.out_w();
    for (std::int64_t i = 0; i < 3 * high * wide * 5; ++i) {
      const std::int64_t image = i / 5 / wide / high, y = i / 5 / wide % high, x = i / 5 % wide;
      whole.set(whole.index("residual"), i,
                halved.get("residual", ((image * (high / 2) + y / 2) * (wide / 2) + x / 2) * 5 + i % 5));
    }
    EXPECT_EQ(halved.reference("y"), whole.reference("y"));
    ASSERT_TRUE(halved.run_host().ok());
    EXPECT_EQ(halved.difference(), "");
  }
}

// ---- its statistics in groupnorm's hands: the norm of its output is the same, computed or given

// The convolution, and what groupnorm makes of its output.
void expect_same_norm(const std::string& convolution, const std::string& norm, const std::string& slab_stats) {
  SCOPED_TRACE(convolution);
  const Op norm_op = make_op(groupnorm::definition);
  HostData conv(op(), op().parse(convolution), DType::fp32, 1);
  ASSERT_TRUE(conv.run_host().ok());

  HostData plain(norm_op, norm_op.parse(norm), DType::fp32, 2);
  HostData given(norm_op, norm_op.parse(norm + ",slab_stats=" + slab_stats), DType::fp32, 2);
  const auto copy = [](const HostData& from, const char* name, HostData& to, const char* as) {
    const auto& bytes = from.storage[from.index(name)];
    auto& target = to.storage[to.index(as)];
    ASSERT_EQ(bytes.size(), target.size()) << as;
    std::memcpy(target.data(), bytes.data(), bytes.size());
  };
  for (HostData* data : {&plain, &given}) {
    copy(conv, "y", *data, "x");
    copy(plain, "gamma", *data, "gamma");
    copy(plain, "beta", *data, "beta");
  }
  copy(conv, "mean", given, "slab_mean");
  copy(conv, "m2", given, "slab_m2");
  ASSERT_TRUE(given.run_host().ok());
  const std::vector<double> expected = plain.reference("y");
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(given.get("y", static_cast<std::int64_t>(i)), expected[i], 2e-5) << i;
}

TEST(conv2d_statistics, AreThoseThatGroupnormTakes) {
  expect_same_norm("n=2,h=9,w=9,cin=5,cout=12,image_shift=1,stats=1", "n=2,hw=81,channels=12,groups=4", "given");
  expect_same_norm("n=1,h=16,w=16,cin=3,cout=6,stride=2,act=silu,stats=1", "n=1,hw=64,channels=6,groups=3", "given");
  expect_same_norm("n=2,h=9,w=5,cin=7,cout=8,upsample=1,stats=1", "n=2,hw=180,channels=8,groups=2", "quarters");
}

}  // namespace
}  // namespace noisefloor::conv2d
