// conv3d_temporal on the host: its problems, its oracle against numbers worked out by hand, the host variant against
// it.
#include "kernels/conv3d_temporal/conv3d_temporal.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "tests/support/host_data.h"

namespace noisefloor::conv3d_temporal {
namespace {

const Op& op() {
  static const Op value = make_op(definition);
  return value;
}

TEST(conv3d_temporal, ProblemTextIsCanonicalAndChecked) {
  EXPECT_EQ(op().print(op().parse("batch=1,frames=2,hw=3,cin=4,cout=5,bias=1")), "batch=1,frames=2,hw=3,cin=4,cout=5");
  EXPECT_THROW(op().parse("batch=1,frames=0,hw=3,cin=4,cout=5"), InvalidInput);
  EXPECT_THROW(op().parse("batch=1,frames=2,hw=3,cin=4"), InvalidInput);
  EXPECT_THROW(op().parse("batch=32767,frames=4096,hw=1024,cin=1,cout=1"), InvalidInput);
}

TEST(conv3d_temporal, CostCountsEachTensorOnce) {
  const Cost cost = op().cost(op().parse("batch=2,frames=3,hw=5,cin=7,cout=11,residual=1"), DType::bf16);
  EXPECT_EQ(cost.flops, 2.0 * 30 * 11 * 21);
  EXPECT_EQ(cost.bytes, 2.0 * (30 * 7 + 11 * 21 + 11 + 2 * 30 * 11));
  const Cost shifted = op().cost(op().parse("batch=2,frames=3,hw=5,cin=7,cout=11,image_shift=1"), DType::bf16);
  EXPECT_EQ(shifted.flops, cost.flops);
  EXPECT_EQ(shifted.bytes, 2.0 * (30 * 7 + 11 * 21 + 11 + 2 * 11 + 30 * 11));
}

// Two videos of three frames of two pixels: frames meet their neighbours, pixels and videos do not.
TEST(conv3d_temporal, OracleGivesTheNumbersWorkedOutByHand) {
  HostData data(op(), op().parse("batch=2,frames=3,hw=2,cin=1,cout=1,residual=1"), DType::fp32, 1);
  data.set("x", {1, 2, 10, 20, 100, 200, 3, 4, 30, 40, 300, 400});
  data.set("w", {5, 6, 7});
  data.set("bias", {1000});
  data.set("residual", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5});
  EXPECT_EQ(
      data.reference("y"),
      (std::vector<double>{1000 + 6 + 70, 1000 + 12 + 140, 1000 + 5 + 60 + 700, 1000 + 10 + 120 + 1400, 1000 + 50 + 600,
                           1000 + 100 + 1200, 1000 + 18 + 210, 1000 + 24 + 280, 1000 + 15 + 180 + 2100,
                           1000 + 20 + 240 + 2800, 1000 + 150 + 1800, 1000 + 200 + 2400 + 0.5}));
}

// A row for each video, of all its frames and pixels.
TEST(conv3d_temporal, ShiftsEachVideoByARowOfItsOwn) {
  HostData data(op(), op().parse("batch=2,frames=2,hw=2,cin=1,cout=2,bias=0,image_shift=1,residual=1"), DType::fp32, 1);
  data.set("x", {0, 0, 0, 0, 0, 0, 0, 0});
  data.set("w", {1, 1, 1, 1, 1, 1});
  data.set("image_shift", {1, 2, 30, 40});
  data.set("residual", {0, 0, 0, 0, 0, 0, 0, 500, 0, 0, 0, 0, 0, 0, 0, 700});
  EXPECT_EQ(data.reference("y"), (std::vector<double>{1, 2, 1, 2, 1, 2, 1, 502, 30, 40, 30, 40, 30, 40, 30, 740}));
}

RC_GTEST_PROP(conv3d_temporal, HostAgreesWithTheOracleOnRandomProblems, ()) {
  const auto number = [](int low, int high) { return std::to_string(*rc::gen::inRange(low, high)); };
  const std::string text = "batch=" + number(1, 4) + ",frames=" + number(1, 9) + ",hw=" + number(1, 60) +
                           ",cin=" + number(1, 80) + ",cout=" + number(1, 80) + ",bias=" + number(0, 2) +
                           ",image_shift=" + number(0, 2) + ",residual=" + number(0, 2);
  const DType dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
  HostData data(op(), op().parse(text), dtype, *rc::gen::arbitrary<unsigned>());
  RC_LOG() << to_string(dtype) << " " << text;
  RC_ASSERT(data.run_host().ok());
  RC_ASSERT(data.difference() == "");
}

}  // namespace
}  // namespace noisefloor::conv3d_temporal
