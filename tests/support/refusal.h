// What a call is refused with.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>

#include "kernels/core/fields.h"

namespace noisefloor {

// The message of the error that it throws; "" where it throws none.
template <class Error = InvalidInput, class Call>
std::string refusal_of(Call&& call) {
  try {
    static_cast<void>(call());
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// The message of any error at run time.
template <class Call>
std::string error_of(Call&& call) {
  return refusal_of<std::runtime_error>(call);
}

inline void expect_parts(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

}  // namespace noisefloor
