// FNV-1a of bytes, one after the other: the same on every machine and in every build. It tells two things apart; it
// keeps nobody out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace noisefloor {

class Fingerprint {
 public:
  Fingerprint& add(const void* data, std::size_t bytes) {
    const auto* const begin = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < bytes; ++i) value_ = (value_ ^ begin[i]) * 0x100000001b3;
    return *this;
  }
  // Of a text, only its characters; of a number, its bytes.
  Fingerprint& add(std::string_view text) { return add(text.data(), text.size()); }
  template <class Number>
  requires(std::is_arithmetic_v<Number> || std::is_enum_v<Number>) Fingerprint& add(Number number) {
    return add(&number, sizeof number);
  }
  std::uint64_t value() const { return value_; }
  std::string text() const;  // 16 hexadecimal digits

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

inline std::string Fingerprint::text() const {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string digits(16, '0');
  for (int i = 0; i < 16; ++i) digits[static_cast<std::size_t>(i)] = kDigits[value_ >> (60 - 4 * i) & 15];
  return digits;
}

}  // namespace noisefloor
