// What was asked for and cannot be, in words: throw refusal("{}: no such file", name).
#pragma once

#include <fmt/format.h>

#include <utility>

#include "kernels/core/fields.h"

namespace noisefloor {

template <class... Words>
InvalidInput refusal(fmt::format_string<Words...> form, Words&&... words) {
  return InvalidInput(fmt::format(form, std::forward<Words>(words)...));
}

}  // namespace noisefloor
