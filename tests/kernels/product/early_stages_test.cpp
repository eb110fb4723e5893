// How many stages' weights are asked for early.
#include <gtest/gtest.h>

#include "kernels/product/sm90a_schedule.h"

namespace noisefloor::product {
namespace {

TEST(product_early_stages, AreOfConstantWeightsInProgrammaticLaunches) {
  LaunchContext context;
  context.programmatic_launch = true;
  EXPECT_EQ(early_stages(context, 8), 0);
  context.constant_inputs = ~(std::uint64_t{1} << kWeightTensor);  // all but the weights
  EXPECT_EQ(early_stages(context, 8), 0);
  context.constant_inputs = std::uint64_t{1} << kWeightTensor;
  EXPECT_EQ(early_stages(context, 8), kEarlyStages);
  EXPECT_EQ(early_stages(context, 3), 3);
  context.programmatic_launch = false;
  EXPECT_EQ(early_stages(context, 8), 0) << "behind an ordinary edge there is nothing to wait for";
}

}  // namespace
}  // namespace noisefloor::product
