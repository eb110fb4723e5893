// Derivatives of an op's oracle by differences, which a backward op's oracle is compared with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/host_data.h"

namespace noisefloor {

// Inputs of fp32 become multiples of 2^-10, so that a step from them is exact.
inline void coarsen(HostData& data) {
  for (std::size_t tensor = 0; tensor < data.specs.size(); ++tensor)
    for (std::int64_t i = 0; data.specs[tensor].role == Role::in && i < data.specs[tensor].elements(); ++i)
      data.set(tensor, i, std::round(data.get(tensor, i) * 1024) / 1024);
}

// Each element of `gradient` is the slope, by that of `input`, of the sum of `output` times `weights`: by central
// differences of fourth order.
inline void expect_slopes(HostData& data, const std::string& input, const std::string& output,
                          const std::vector<double>& weights, const std::vector<double>& gradient, double tolerance) {
  constexpr double kStep = 0x1p-7;
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    const auto element = static_cast<std::int64_t>(i);
    const double at = data.get(input, element);
    const auto sum_at = [&](double steps) {
      data.set(data.index(input), element, at + steps * kStep);
      const std::vector<double> values = data.reference(output);
      return std::inner_product(values.begin(), values.end(), weights.begin(), 0.0);
    };
    const double slope = (8 * (sum_at(1) - sum_at(-1)) - (sum_at(2) - sum_at(-2))) / (12 * kStep);
    data.set(data.index(input), element, at);
    EXPECT_NEAR(gradient[i], slope, tolerance * std::max(1.0, std::abs(slope))) << input << " " << i;
  }
}

inline std::vector<double> values_of(const HostData& data, const std::string& name) {
  std::vector<double> values(static_cast<std::size_t>(data.specs[data.index(name)].elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = data.get(name, static_cast<std::int64_t>(i));
  return values;
}

}  // namespace noisefloor
