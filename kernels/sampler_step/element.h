// The arithmetic of one element and the noise of one block, shared by every variant: what differs between variants is
// how they move data.
#pragma once

#include <cstdint>

#include "kernels/core/philox.h"
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

// Philox blocks of four consecutive elements; 32-bit words: block within the image, step, image (low, high).
struct NoiseStream {
  PhiloxKeys keys{};
  std::uint64_t first_image = 0;
  std::uint32_t step = 0;
};
inline constexpr int kNormalsPerBlock = 4;

inline NoiseStream noise_stream(const Problem& problem) {
  return {philox_keys(static_cast<std::uint64_t>(problem.seed)), static_cast<std::uint64_t>(problem.image),
          static_cast<std::uint32_t>(problem.step)};
}

NOISEFLOOR_HD Philox4 noise_words(const NoiseStream& stream, std::uint64_t image_in_batch, std::uint32_t block) {
  const std::uint64_t step_and_block = static_cast<std::uint64_t>(stream.step) << 32 | block;
  return philox4x32_10(philox_counter(step_and_block, stream.first_image + image_in_batch), stream.keys);
}

}  // namespace noisefloor::sampler_step
