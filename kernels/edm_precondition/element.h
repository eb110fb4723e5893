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
#if defined(__CUDA_ARCH__)
  const float inverse = rsqrtf(variance);
#else
  const float inverse = 1.0f / std::sqrt(variance);
#endif
  if (side == Side::input) return {inverse, 0.0f};
  const float part = sigma_data * inverse;
  return {part * part, sigma * part};
}

}  // namespace noisefloor::edm_precondition
