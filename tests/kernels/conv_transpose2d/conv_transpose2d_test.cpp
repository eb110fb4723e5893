// conv_transpose2d on the host: its problems, its oracle against numbers worked out by hand, the host variant (four
// phases) against it.
#include "kernels/conv_transpose2d/conv_transpose2d.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/host_data.h"

namespace noisefloor::conv_transpose2d {
namespace {

const Op& op() {
  static const Op value = make_op(definition);
  return value;
}

TEST(conv_transpose2d, ProblemTextIsCanonicalAndChecked) {
  EXPECT_EQ(op().print(op().parse("n=1,h=2,w=3,cin=4,cout=5,kernel=4,act=none")), "n=1,h=2,w=3,cin=4,cout=5");
  EXPECT_EQ(op().print(op().parse("n=1,h=2,w=3,cin=4,cout=5,kernel=2,act=relu,bias=0")),
            "n=1,h=2,w=3,cin=4,cout=5,kernel=2,act=relu,bias=0");
  for (const char* bad : {"n=1,h=2,w=3,cin=4,cout=5,kernel=3", "n=1,h=2,w=3,cin=4,cout=5,kernel=5",
                          "n=1,h=0,w=3,cin=4,cout=5", "n=512,h=1024,w=1024,cin=1,cout=1"})
    EXPECT_THROW(op().parse(bad), InvalidInput) << bad;
}

TEST(conv_transpose2d, CostCountsTheTapsThatMeetAnOutput) {
  const Cost four = op().cost(op().parse("n=2,h=3,w=5,cin=7,cout=11"), DType::bf16);
  EXPECT_EQ(four.flops, 2.0 * (2 * 6 * 10) * 11 * (4 * 7));
  EXPECT_EQ(four.bytes, 2.0 * (2 * 3 * 5 * 7 + 11 * 16 * 7 + 11 + 2 * 6 * 10 * 11));
  const Cost two = op().cost(op().parse("n=2,h=3,w=5,cin=7,cout=11,kernel=2"), DType::bf16);
  EXPECT_EQ(two.flops, 2.0 * (2 * 6 * 10) * 11 * 7);
}

TEST(conv_transpose2d, OracleGivesTheNumbersWorkedOutByHand) {
  HostData two(op(), op().parse("n=1,h=1,w=2,cin=1,cout=1,kernel=2"), DType::fp32, 1);
  two.set("x", {1, 10});
  two.set("w", {1, 2, 3, 4});
  two.set("bias", {0.5});
  EXPECT_EQ(two.reference("y"), (std::vector<double>{1.5, 2.5, 10.5, 20.5, 3.5, 4.5, 30.5, 40.5}));
  // A 4x4 kernel of rows 1..4, 5..8, ... spread from one pixel loses its rim to the pad; from two, neighbours overlap.
  HostData four(op(), op().parse("n=1,h=1,w=2,cin=1,cout=1,kernel=4,bias=0,act=relu"), DType::fp32, 1);
  std::vector<double> taps(16);
  std::iota(taps.begin(), taps.end(), 1);
  four.set("x", {1, -10});
  four.set("w", taps);
  EXPECT_EQ(four.reference("y"), (std::vector<double>{6, 0, 0, 0, 10, 0, 0, 0}));
  four.set("x", {1, 10});
  EXPECT_EQ(four.reference("y"), (std::vector<double>{6, 7 + 50, 8 + 60, 70, 10, 11 + 90, 12 + 100, 110}));
}

RC_GTEST_PROP(conv_transpose2d, HostAgreesWithTheOracleOnRandomProblems, ()) {
  const auto number = [](int low, int high) { return std::to_string(*rc::gen::inRange(low, high)); };
  const std::string text = "n=" + number(1, 4) + ",h=" + number(1, 10) + ",w=" + number(1, 10) +
                           ",cin=" + number(1, 70) + ",cout=" + number(1, 70) +
                           ",kernel=" + *rc::gen::element<std::string>("2", "4") +
                           ",act=" + *rc::gen::element<std::string>("none", "silu", "relu") + ",bias=" + number(0, 2);
  const DType dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
  HostData data(op(), op().parse(text), dtype, *rc::gen::arbitrary<unsigned>());
  RC_LOG() << to_string(dtype) << " " << text;
  RC_ASSERT(data.run_host().ok());
  RC_ASSERT(data.difference() == "");
}

}  // namespace
}  // namespace noisefloor::conv_transpose2d
