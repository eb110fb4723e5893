// How far pictures are from others that they stand for.
#pragma once

#include <span>

namespace noisefloor::pipeline {

// |found - expected| / |expected|, both of one length.
double relative_l2(std::span<const float> found, std::span<const float> expected);

}  // namespace noisefloor::pipeline
