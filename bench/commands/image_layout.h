// Images change their layout where a network's files begin: channels-first there, as PyTorch has them, channels-last in
// the network.
#pragma once

#include <cstdint>
#include <vector>

#include "networks/network.h"

namespace noisefloor {

// [..., a, b] to [..., b, a].
template <class Number>
std::vector<Number> transposed(const std::vector<Number>& numbers, std::int64_t a, std::int64_t b) {
  std::vector<Number> result(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i), image = at / (a * b), row = at / b % a, column = at % b;
    result[static_cast<std::size_t>((image * b + column) * a + row)] = numbers[i];
  }
  return result;
}

template <class Number>
std::vector<Number> to_channels_first(const std::vector<Number>& images, const networks::ImageShape& image) {
  return transposed(images, image.pixels(), image.channels);
}
template <class Number>
std::vector<Number> to_channels_last(const std::vector<Number>& images, const networks::ImageShape& image) {
  return transposed(images, image.channels, image.pixels());
}

// Of [n, height, width, channels] or [n, frames, height, width, channels].
std::vector<std::int64_t> channels_first_shape(std::vector<std::int64_t> channels_last);

}  // namespace noisefloor
