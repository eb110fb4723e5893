// Division by a number that a launch knows beforehand, without the forty dependent instructions that a GPU takes for
// one: n / d is n * (floor(2^(31 + s) / d) + 1) >> (31 + s), where 2^s is the power of two from d on (Granlund and
// Montgomery, PLDI 1994). Exact for 0 <= n < 2^31. Written n / d and n % d, as of an int or an unsigned.
#pragma once

#include <bit>
#include <cstdint>

namespace noisefloor {

class Divider {
 public:
  // 1 <= value < 2^31
  constexpr Divider(int value = 1)
      : value_(value),
        shift_(31 + std::bit_width(static_cast<std::uint32_t>(value) - 1)),
        multiplier_(static_cast<std::uint32_t>((std::uint64_t{1} << shift_) / static_cast<std::uint64_t>(value) + 1)) {}

  constexpr operator int() const { return value_; }
  constexpr std::uint32_t divisor() const { return static_cast<std::uint32_t>(value_); }
  friend constexpr std::uint32_t operator/(std::uint32_t n, const Divider& d) {
    return static_cast<std::uint32_t>(std::uint64_t{n} * d.multiplier_ >> d.shift_);
  }
  friend constexpr std::uint32_t operator%(std::uint32_t n, const Divider& d) { return n - n / d * d.divisor(); }
  friend constexpr int operator/(int n, const Divider& d) {
    return static_cast<int>(static_cast<std::uint32_t>(n) / d);
  }
  friend constexpr int operator%(int n, const Divider& d) { return n - n / d * d.value_; }

 private:
  int value_, shift_;
  std::uint32_t multiplier_;
};

}  // namespace noisefloor
