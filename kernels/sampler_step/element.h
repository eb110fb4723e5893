// The arithmetic of one element and the noise of one block, shared by every variant: what differs between variants is
// how they move data.
#pragma once

#include <cstdint>

#include "kernels/core/philox.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {

// Comparisons, not fmin and fmax, so that a NaN passes through.
NOISEFLOOR_HD float clamp_symmetric(float value, float limit) {
  value = value > limit ? limit : value;
  return value < -limit ? -limit : value;
}

// Philox blocks of four consecutive elements; 32-bit words: block within the image, step, image (low, high).
struct NoiseStream {
  std::uint64_t seed = 0;
  std::uint64_t first_image = 0;
  std::uint32_t step = 0;
};
inline constexpr int kNormalsPerBlock = 4;

inline NoiseStream noise_stream(const Problem& problem) {
  return {static_cast<std::uint64_t>(problem.seed), static_cast<std::uint64_t>(problem.image),
          static_cast<std::uint32_t>(problem.step)};
}

NOISEFLOOR_HD Philox4 noise_words(const NoiseStream& stream, std::uint64_t image_in_batch, std::uint32_t block) {
  const std::uint64_t step_and_block = static_cast<std::uint64_t>(stream.step) << 32 | block;
  return philox4x32_10(philox_counter(step_and_block, stream.first_image + image_in_batch), stream.seed);
}

}  // namespace noisefloor::sampler_step
