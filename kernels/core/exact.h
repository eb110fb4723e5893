// What oracles share: in double, straight from the definition.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <vector>

#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"

namespace noisefloor::exact {

// values[i] is that of elements[i], on all cores. `make()` gives a function of an element to each range of neighbours,
// which may hold what these share.
template <class Make>
void each_element(std::span<const std::int64_t> elements, std::span<double> values, const Make& make) {
  constexpr std::int64_t kElementsPerTask = 64;
  parallel_for(std::ssize(elements), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    auto value_of = make();
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      values[i] = value_of(elements[i]);
  });
}

// Floats hold bf16, fp16 and fp32 exactly, and double their products.
inline std::vector<float> floats(const HostTensor& tensor, std::int64_t begin, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  load_floats(tensor.dtype, tensor.data, begin, count, values.data());
  return values;
}
inline double dot(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  return sum;
}

inline double silu(double v) {
  return v / (1 + std::exp(-v));
}
inline double relu(double v) {
  return v < 0 ? 0 : v;
}
inline double gelu(double v) {
  return v / 2 * std::erfc(-v / std::numbers::sqrt2);
}
// Derivatives.
inline double silu_slope(double v) {
  const double sigmoid = 1 / (1 + std::exp(-v));
  return sigmoid * (1 + v * (1 - sigmoid));
}
inline double gelu_slope(double v) {
  constexpr double kDensity = 0.5 * std::numbers::inv_sqrtpi * std::numbers::sqrt2;  // 1 / sqrt(2 pi)
  return std::erfc(-v / std::numbers::sqrt2) / 2 + v * kDensity * std::exp(-v * v / 2);
}

}  // namespace noisefloor::exact
