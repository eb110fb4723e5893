// The coefficients of one image, shared by every variant.
#pragma once

#include <cmath>

#include "kernels/core/philox.h"  // NOISEFLOOR_HD
#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {

// y = x_scale * x + f_scale * f.
struct Scales {
  float x, f;
};

NOISEFLOOR_HD Scales scales(Side side, float sigma, float sigma_data) {
  const float variance = sigma * sigma + sigma_data * sigma_data;
  const float deviation = sqrtf(variance);
  if (side == Side::input) return {1.0f / deviation, 0.0f};
  return {sigma_data * sigma_data / variance, sigma * sigma_data / deviation};
}

}  // namespace noisefloor::edm_precondition
