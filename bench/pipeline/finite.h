// Numbers that are not finite are never results.
#pragma once

#include <cstdint>
#include <span>

namespace noisefloor::pipeline {

// Throws std::runtime_error where one of `numbers`, of `per_image` an image and images counted from `first_image`, is
// not finite: how many are, in which images.
void require_finite(std::span<const float> numbers, std::int64_t per_image, std::int64_t first_image);

}  // namespace noisefloor::pipeline
