// groupnorm's down_w: against the norm and two averages in sequence, against numbers worked out by hand, and what it
// refuses.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/groupnorm/groupnorm.h"
#include "kernels/resample/resample.h"
#include "tests/support/host_data.h"

namespace noisefloor::groupnorm {
namespace {

const Op& norm_op() {
  static const Op value = make_op(definition);
  return value;
}

// The op's problem and the two averages in sequence, as resample makes them: rounded alike on the way.
TEST(groupnorm_down, IsTheNormAndTwoAveragesBehindIt) {
  const Op average = make_op(resample::definition);
  EXPECT_TRUE(rc::check([&] {
    const auto rows = *rc::gen::inRange<std::int64_t>(1, 5), half_w = *rc::gen::inRange<std::int64_t>(1, 20);
    const auto fusion = *rc::gen::element<std::string>("none", "silu", "silu+ss");
    auto p = norm_op()
                 .parse("n=" + std::to_string(*rc::gen::inRange(1, 4)) + ",hw=4,channels=1,groups=1,stats=1,fusion=" +
                        fusion + (fusion == "silu+ss" && *rc::gen::arbitrary<bool>() ? ",packed=1" : ""))
                 .as<Problem>();
    p.groups = *rc::gen::inRange(1, 9);
    p.channels = p.groups * *rc::gen::inRange(1, 80);
    p.hw = 4 * rows * half_w;
    RC_PRE(p.group_size() >= 32);  // means of fewer may be all but nothing
    if (*rc::gen::arbitrary<bool>()) p.slab_stats = SlabStats::given;
    const DType dtype = *rc::gen::element(DType::bf16, DType::fp16, DType::fp32);
    HostData whole(norm_op(), AnyProblem(p), dtype, *rc::gen::arbitrary<unsigned>());
    p.down_w = 2 * half_w;
    HostData down(norm_op(), AnyProblem(p), dtype, 0);
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

TEST(groupnorm_down, GivesTheNumbersWorkedOutByHand) {
  // One channel, two rows of four pixels, all of one group: 0 2 4 6 / 0 2 4 6, mean 3, variance 5.
  HostData data(norm_op(), "n=1,hw=8,channels=1,groups=1,eps=1e-12,down_w=4", DType::fp32, 1);
  for (std::int64_t i = 0; i < 8; ++i) data.set(data.index("x"), i, static_cast<double>(i % 4 * 2));
  data.set(data.index("gamma"), 0, 2);
  data.set(data.index("beta"), 0, 1);
  const auto near = [&](const char* output, double left, double right) {
    const std::vector<double> values = data.reference(output);
    ASSERT_EQ(values.size(), 2u);
    EXPECT_NEAR(values[0], left, 1e-9) << output;
    EXPECT_NEAR(values[1], right, 1e-9) << output;
  };
  near("x_down", 1, 5);
  near("y", 1 - 4 / std::sqrt(5.0), 1 + 4 / std::sqrt(5.0));
}

TEST(groupnorm_down, QuartersTwoOutputs) {
  const std::string text = "n=2,hw=48,channels=12,groups=4,fusion=silu";
  const HostData data(norm_op(), text + ",stats=1,down_w=6", DType::bf16, 1);
  std::vector<std::string> names;
  for (const TensorSpec& spec : data.specs) names.emplace_back(spec.name);
  EXPECT_EQ(names, (std::vector<std::string>{"x", "gamma", "beta", "y", "x_down", "mean", "rstd"}));
  for (const char* output : {"y", "x_down"})
    EXPECT_EQ(data.specs[data.index(output)].shape, (std::vector<std::int64_t>{2, 12, 12}));
  const auto cost = [](const std::string& of) { return norm_op().cost(norm_op().parse(of), DType::bf16); };
  const double elements = 2 * 48 * 12;
  EXPECT_EQ(cost(text + ",down_w=6").bytes, cost(text).bytes - 2 * elements / 2);
  EXPECT_EQ(cost(text + ",down_w=6").flops, cost(text).flops + 2 * elements);
  EXPECT_EQ(norm_op().print(norm_op().parse(text + ",down_w=0")), text);
  EXPECT_EQ(norm_op().print(norm_op().parse("down_w=6," + text)), text + ",down_w=6");
}

}  // namespace
}  // namespace noisefloor::groupnorm
