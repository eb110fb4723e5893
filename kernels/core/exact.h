// What oracles share: in double, straight from the definition.
#pragma once

#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

namespace noisefloor::exact {

// Floats hold bf16, fp16 and fp32 exactly, and double their products.
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

}  // namespace noisefloor::exact
