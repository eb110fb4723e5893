#include "bench/pipeline/finite.h"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace noisefloor::pipeline {

void require_finite(std::span<const float> numbers, std::int64_t per_image, std::int64_t first_image) {
  std::int64_t wrong = 0, images = 0, first = -1, last = -1;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (std::isfinite(numbers[i])) continue;
    const std::int64_t image = static_cast<std::int64_t>(i) / per_image;
    if (image != last) ++images;
    if (first < 0) first = image;
    last = image;
    ++wrong;
  }
  if (wrong == 0) return;
  throw std::runtime_error(fmt::format(
      "{} of {} elements of the result are not finite (NaN or infinite), in {} of {} images, the first in "
      "image {}; nothing is written. A wider --dtype, other weights or other noise levels may help",
      wrong, numbers.size(), images, static_cast<std::int64_t>(numbers.size()) / per_image, first_image + first));
}

}  // namespace noisefloor::pipeline
