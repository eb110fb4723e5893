#include "kernels/core/philox.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "kernels/device/image_noise.h"

namespace noisefloor {
namespace {

// Known answers published with Random123 (kat_vectors of philox4x32 with 10 rounds).
TEST(Philox, GivesThePublishedWords) {
  const auto expect = [](Philox4 counter, std::uint64_t seed, std::array<std::uint32_t, 4> words) {
    const Philox4 result = philox4x32_10(counter, seed);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(result.v[i], words[i]);
  };
  expect({{0, 0, 0, 0}}, 0, {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  expect({{0xffffffffu, 0xffffffffu, 0xffffffffu, 0xffffffffu}}, 0xffffffffffffffffu,
         {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu});
  expect({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}}, 0x299f31d0a4093822u,
         {0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u});
}

TEST(Normal, UniformIsInZeroToOne) {
  EXPECT_EQ(philox_uniform(0), 0x1p-33f);
  EXPECT_EQ(philox_uniform(0xffffffffu), 1.0f);
  EXPECT_EQ(philox_uniform(0x80000000u), 0.5f);
}

RC_GTEST_PROP(ImageNoise, GivesTheWordsOfTheStream,
              (std::uint64_t seed, std::uint64_t image, std::uint32_t in_batch, std::uint32_t step,
               std::uint32_t block)) {
  const NoiseStream stream{philox_keys(seed), image, step};
  const Philox4 expected = noise_words(stream, in_batch, block);
  const Philox4 words = ImageNoise(stream, in_batch).words(stream, block);
  for (std::size_t i = 0; i < 4; ++i) RC_ASSERT(words.v[i] == expected.v[i]);
  const Philox4 odd = ImageNoise(stream, in_batch).odd_words(stream, block / 2);
  const Philox4 expected_odd = noise_words(stream, in_batch, block | 1);
  for (std::size_t i = 0; i < 4; ++i) RC_ASSERT(odd.v[i] == expected_odd.v[i]);
}

bool is_near_exact(std::uint32_t word0, std::uint32_t word1) {
  float first, second;
  box_muller(word0, word1, first, second);
  return std::fabs(first - box_muller_exact(word0, word1, 0)) < 2e-6 &&
         std::fabs(second - box_muller_exact(word0, word1, 1)) < 2e-6;
}

TEST(Normal, EdgesOfTheTransform) {
  for (const std::uint32_t word0 : {0u, 1u, 0x7fffffffu, 0x80000000u, 0xf8000000u, 0xffffff00u, 0xffffffffu})
    for (std::uint32_t octant = 0; octant < 8; ++octant)
      for (const std::uint32_t near : {0xffffffffu, 0u, 1u})
        EXPECT_TRUE(is_near_exact(word0, (octant << 29) + near)) << word0 << ' ' << octant << ' ' << near;
}

RC_GTEST_PROP(Normal, FloatIsNearTheExactTransform, (std::uint32_t word0, std::uint32_t word1)) {
  RC_ASSERT(is_near_exact(word0, word1));
}

// Kolmogorov and Smirnov: sqrt(n) D exceeds 1.95 with probability 0.001.
TEST(Normal, Distribution) {
  std::vector<double> values;
  for (std::uint64_t block = 0; block < 1 << 16; ++block)
    for (const float value : philox_normal4(1, 0, block).v) values.push_back(value);
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  double distance = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double below = 0.5 * std::erfc(-values[i] / std::numbers::sqrt2);
    distance = std::max(
        {distance, std::fabs(below - static_cast<double>(i) / n), std::fabs(below - static_cast<double>(i + 1) / n)});
  }
  EXPECT_LT(std::sqrt(n) * distance, 1.95);
}

}  // namespace
}  // namespace noisefloor
