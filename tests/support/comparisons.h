// Comparisons of tensors with numbers, in the memory of any platform.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/platform/platform.h"

namespace noisefloor {

// Holds Platform::compare to a plain loop: all numbers, some of them, equal zeros, and what is not finite.
class Comparison {
 public:
  // Of `total` normal numbers, or of `some` of them, with others beside them.
  Comparison(Platform& platform, DType dtype, std::int64_t total, bool some)
      : platform_(&platform), dtype_(dtype), some_(some) {
    std::mt19937 random(static_cast<unsigned>(total));
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < total; i += some ? 1 + i % 3 : 1) elements_.push_back(i);
    data_.resize(static_cast<std::size_t>(total) * size_of(dtype));
    for (std::int64_t i = 0; i < total; ++i) store_element(dtype, data_.data(), i, normal(random));
    for (const std::int64_t element : elements_) values_.push_back(value(element) + 1e-3 * normal(random));
  }

  void set(std::size_t place, double number, double expected) {
    store_element(dtype_, data_.data(), elements_[place], number);
    values_[place] = expected;
  }
  double value(std::int64_t element) const { return load_element(dtype_, data_.data(), element); }

  Difference found(double rms) const {
    const Buffer data = uploaded(data_), values = uploaded(values_), elements = uploaded(elements_);
    const auto* const list = some_ ? static_cast<const std::int64_t*>(elements.data()) : nullptr;
    return platform_->compare(dtype_, data.data(), {DType::fp64, values.data(), list}, std::ssize(values_), rms);
  }

  Difference by_a_loop(double rms) const {
    Difference difference;
    double squared_error = 0, squared = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const double error = std::abs(value(elements_[i]) - values_[i]);
      const double relative = error == 0 ? 0 : error / (std::abs(values_[i]) + rms);
      if (relative > difference.max_error)
        difference.max_error = relative, difference.worst = static_cast<std::int64_t>(i);
      squared_error += error * error;
      squared += values_[i] * values_[i];
    }
    difference.l2_error = std::sqrt(squared_error / squared);
    return difference;
  }

 private:
  template <class Number>
  Buffer uploaded(const std::vector<Number>& numbers) const {
    Buffer buffer(*platform_, numbers.size() * sizeof(Number));
    platform_->upload(buffer.data(), numbers.data(), buffer.bytes());
    return buffer;
  }

  Platform* platform_;
  DType dtype_;
  bool some_;
  std::vector<char> data_;
  std::vector<std::int64_t> elements_;
  std::vector<double> values_;
};

// What every platform must do; `report` is called with what is wrong.
template <class Report>
void check_comparisons(Platform& platform, const Report& report) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
    for (const bool some : {false, true})
      for (const std::int64_t total : {1, 31, 257, 100'003, 1'000'000}) {
        const auto say = [&](const std::string& what) {
          report(what + " of " + to_string(dtype) + ", " + std::to_string(total) + (some ? ", some" : ", all"));
        };
        Comparison comparison(platform, dtype, total, some);
        const Difference found = comparison.found(0.5), wanted = comparison.by_a_loop(0.5);
        if (found.max_error != wanted.max_error || found.worst != wanted.worst) say("the worst");
        if (!(std::abs(found.l2_error - wanted.l2_error) <= 1e-12 * wanted.l2_error)) say("the L2 error");
        if (!found.all_finite) say("finite numbers");
        comparison.set(0, 0, 0);
        if (const Difference zeros = comparison.found(0); std::isnan(zeros.max_error)) say("zeros that are right");
        comparison.set(0, -0.0, 1);
        if (const Difference one = comparison.found(0.5); !(one.max_error >= 1 / 1.5)) say("a zero that is wrong");
        comparison.set(0, std::nan(""), 1);
        if (const Difference nan = comparison.found(0.5); nan.all_finite || nan.worst != 0) say("a NaN");
        comparison.set(0, 1, std::nan(""));
        if (const Difference nan = comparison.found(0.5); !std::isnan(nan.l2_error)) say("a NaN that is expected");
      }
}

}  // namespace noisefloor
