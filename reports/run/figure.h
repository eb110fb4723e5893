// A number of a row, or none: std::optional<double> in half its bytes, since a run has many rows of many columns.
#pragma once

#include <cmath>
#include <limits>
#include <optional>

namespace noisefloor {

// None is NaN, which no row has as a number: files leave it blank.
class Figure {
 public:
  using value_type = double;

  constexpr Figure() = default;
  constexpr Figure(std::nullopt_t) {}
  constexpr Figure(double value) : value_(value) {}
  constexpr Figure(const std::optional<double>& value) : value_(value ? *value : kNone) {}

  bool has_value() const { return !std::isnan(value_); }
  explicit operator bool() const { return has_value(); }
  operator std::optional<double>() const { return has_value() ? std::optional(value_) : std::nullopt; }
  double operator*() const { return value_; }
  double value() const { return has_value() ? value_ : throw std::bad_optional_access(); }
  double value_or(double other) const { return has_value() ? value_ : other; }
  void reset() { value_ = kNone; }

  friend bool operator==(const Figure& a, const Figure& b) {
    return a.has_value() ? a.value_ == b.value_ : !b.has_value();
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  double value_ = kNone;
};

}  // namespace noisefloor
