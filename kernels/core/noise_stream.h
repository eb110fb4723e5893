// Which Philox words noise that is drawn inside a kernel takes: a number depends on seed, image, step and element, and
// on nothing else, so that an image is the same in any batch, with any variant and launch shape.
#pragma once

#include <cstdint>

#include "kernels/core/philox.h"

namespace noisefloor {

// Philox blocks of four consecutive elements; 32-bit words: block within the image, step, image (low, high).
struct NoiseStream {
  PhiloxKeys keys{};
  std::uint64_t first_image = 0;
  std::uint32_t step = 0;
};
inline constexpr int kNormalsPerBlock = 4;

// Of a problem with the fields seed, image (number of the batch's first image) and step.
template <class Problem>
NoiseStream noise_stream(const Problem& problem) {
  return {philox_keys(static_cast<std::uint64_t>(problem.seed)), static_cast<std::uint64_t>(problem.image),
          static_cast<std::uint32_t>(problem.step)};
}

NOISEFLOOR_HD Philox4 noise_words(const NoiseStream& stream, std::uint64_t image_in_batch, std::uint32_t block) {
  const std::uint64_t step_and_block = static_cast<std::uint64_t>(stream.step) << 32 | block;
  return philox4x32_10(philox_counter(step_and_block, stream.first_image + image_in_batch), stream.keys);
}

// Element `within` of an image: of a whole block two numbers are made, and one is taken.
NOISEFLOOR_HD float noise_element(const NoiseStream& stream, std::uint64_t image_in_batch, std::uint32_t within) {
  const Philox4 words = noise_words(stream, image_in_batch, within / kNormalsPerBlock);
  const bool second_pair = within % kNormalsPerBlock >= 2;
  float first, second;
  box_muller(second_pair ? words.v[2] : words.v[0], second_pair ? words.v[3] : words.v[1], first, second);
  return within % 2 == 0 ? first : second;
}

// The same in double, for oracles.
inline double noise_exact(const NoiseStream& stream, std::uint64_t image_in_batch, std::int64_t within) {
  const Philox4 words = noise_words(stream, image_in_batch, static_cast<std::uint32_t>(within / kNormalsPerBlock));
  const int pair = static_cast<int>(within % kNormalsPerBlock) / 2 * 2;
  return box_muller_exact(words.v[pair], words.v[pair + 1], static_cast<int>(within % 2));
}

}  // namespace noisefloor
