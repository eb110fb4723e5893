// The arithmetic of one element, shared by every variant: what differs between variants is
// how they move data.
#pragma once

#include <cstdint>

#include "kernels/core/noise_stream.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {

// A NaN passes through, which fmin and fmax would not let it.
NOISEFLOOR_HD float clamp_symmetric(float value, float limit) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(limit));
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(value) : "f"(-limit));
  return value;
#else
  value = value > limit ? limit : value;
  return value < -limit ? -limit : value;
#endif
}

}  // namespace noisefloor::sampler_step
