// Division by a number that a launch knows beforehand, without the forty dependent instructions that a GPU takes for
// one: n / d is n * (floor(2^(31 + s) / d) + 1) >> (31 + s), where 2^s is the power of two from d on (Granlund and
// Montgomery, PLDI 1994). Exact for 0 <= n < 2^31. Written n / d and n % d, as of an int.
#pragma once

#include <bit>
#include <cstdint>

namespace noisefloor::product {

class Divisor {
 public:
  // 1 <= value < 2^31
  constexpr Divisor(int value)
      : value_(value),
        shift_(31 + std::bit_width(static_cast<std::uint32_t>(value) - 1)),
        multiplier_(static_cast<std::uint32_t>((std::uint64_t{1} << shift_) / static_cast<std::uint64_t>(value) + 1)) {}

  constexpr operator int() const { return value_; }
  friend constexpr int operator/(int n, const Divisor& d) {
    return static_cast<int>(std::uint64_t{static_cast<std::uint32_t>(n)} * d.multiplier_ >> d.shift_);
  }
  friend constexpr int operator%(int n, const Divisor& d) { return n - n / d * d.value_; }

 private:
  int value_, shift_;
  std::uint32_t multiplier_;
};

}  // namespace noisefloor::product
