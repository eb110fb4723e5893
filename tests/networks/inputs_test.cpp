// What goes into a network: labels, and numbers for timing.
#include "networks/network.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "kernels/core/fields.h"

namespace noisefloor::networks {
namespace {

using Kind = NetworkTensor::Kind;

std::vector<double> filled(const NetworkTensor& input, DType dtype) {
  std::int64_t count = 1;
  for (const std::int64_t extent : input.shape) count *= extent;
  std::vector<char> data(static_cast<std::size_t>(count) * size_of(dtype));
  fill_for_timing(input, dtype, data.data());
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(load_element(dtype, data.data(), i));
  return numbers;
}

TEST(Inputs, EveryNetworkHasNumbersForAllThatIsNotDrawn) {
  for (const NetworkInfo& info : all_networks()) {
    const Network network = info.build({.batch = 4});
    for (const NetworkTensor& input : network.inputs) {
      if (drawn(input.kind)) continue;
      for (const double number : filled(input, network.graph[input.value].dtype)) {
        EXPECT_GE(number, 0) << info.name << ' ' << input.name;
        EXPECT_TRUE(number > 0 || input.kind != Kind::sigma) << info.name;
        EXPECT_TRUE(input.range == 0 || number < static_cast<double>(input.range)) << info.name << ' ' << input.name;
      }
    }
  }
}

TEST(Inputs, LevelsDifferAndStayInRange) {
  const auto steps = filled({"timesteps", Kind::timesteps, 0, {5}, 1000}, DType::fp32);
  EXPECT_EQ(steps, (std::vector<double>{100, 300, 500, 700, 900}));
  const auto sigmas = filled({"sigma", Kind::sigma, 0, {5}, 0}, DType::fp32);
  EXPECT_EQ(std::set<double>(sigmas.begin(), sigmas.end()).size(), 5u);
  EXPECT_GT(sigmas.front(), 0.5);
  EXPECT_LT(sigmas.back(), 2);
}

TEST(Inputs, LabelsAreOneHot) {
  EXPECT_EQ(filled({"labels", Kind::labels, 0, {2, 3}, 3}, DType::bf16), (std::vector<double>{1, 0, 0, 0, 1, 0}));
}

TEST(Inputs, WhatIsDrawnIsNotFilled) {
  EXPECT_TRUE(drawn(Kind::image) && drawn(Kind::text) && drawn(Kind::conditioning) && !drawn(Kind::sigma));
  EXPECT_THROW(filled({"context", Kind::conditioning, 0, {1, 2}, 0}, DType::fp32), std::logic_error);
}

TEST(Inputs, GuidedLabelsStandBehindAHalfWithout) {
  const NetworkInfo& info = require_network("digits");
  for (const std::int64_t levels : {0, 3}) {  // for each the same
    const Network network =
        info.build({.batch = 2, .dtype = DType::fp32, .sampling = true, .guided = true, .hoisted_levels = levels});
    const std::vector<int> labels{3, 9};
    const std::vector<char> data = one_hot(network, labels);
    const std::int64_t numbers = 40 * std::max<std::int64_t>(1, levels);
    ASSERT_EQ(data.size(), static_cast<std::size_t>(numbers) * sizeof(float));
    for (std::int64_t i = 0; i < numbers; ++i)
      EXPECT_EQ(load_element(DType::fp32, data.data(), i), i % 40 == 23 || i % 40 == 39 ? 1 : 0) << i;
    for (const int wrong : {-1, 10}) {
      const std::vector<int> bad{0, wrong};
      EXPECT_THROW(one_hot(network, bad), InvalidInput);
    }
  }
}

}  // namespace
}  // namespace noisefloor::networks
