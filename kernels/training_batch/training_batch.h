// training_batch: what a training step draws. Image i of the batch is one of `dataset`, with replacement; some are
// moved by up to one pixel each way (background -1 comes in), mirrored, or come without their label; each gets a noise
// level and noise of its own:
//
//   level=edm    ln(sigma) normal, of p_mean and p_std;  x = x0 + sigma z;  level: sigma   (Karras et al. 2022)
//   level=ddpm   timestep t even among 1000;  x = alpha_t x0 + sigma_t z;  noise: z;  level: t   (Ho et al. 2020)
//
// All of it are Philox4x32-10's words under `seed`, of counter (block, step, first + i): an image of a step is the same
// in any batch, on any device. The noise takes the blocks of kernels/core/noise_stream.h from 0 on, one for each four
// elements, the rest the last two. Decisions compare words with integers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/core/noise_stream.h"

namespace noisefloor::training_batch {

enum class LevelKind { edm, ddpm };
enum class Schedule { linear, cosine };  // of sampler_step/schedule.h

struct Problem {
  std::int64_t batch = 1;
  std::int64_t h = 1, w = 1, channels = 1;
  std::int64_t classes = 0;  // 0: no labels
  std::int64_t dataset = 1;  // images of the data
  std::int64_t first = 0;    // number of the batch's first image
  std::int64_t seed = 0;
  LevelKind level = LevelKind::edm;
  Schedule schedule = Schedule::linear;
  double p_mean = -1.2, p_std = 1.2;
  double shifted = 0, flipped = 0, unlabelled = 0;

  std::int64_t elements() const { return h * w * channels; }
  std::int64_t total() const { return batch * elements(); }
};

struct Tensors {
  const float* images = nullptr;  // [dataset, h, w, channels]
  const float* labels = nullptr;  // [dataset], classes > 0: class numbers
  const float* step = nullptr;    // [2]: the step's number is step[0] + 65536 step[1]
  float* x0 = nullptr;            // [batch, h, w, channels]
  float* x = nullptr;             // [batch, h, w, channels]
  float* noise = nullptr;         // [batch, h, w, channels], ddpm
  float* level = nullptr;         // [batch]
  void* one_hot = nullptr;        // T [batch, classes]
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_ptx_sm90a;

// Of ptx_sm90a: what a block holds of its image, at most the rows of its 4096 elements, those around them, and what
// 16-byte accesses add.
inline constexpr std::int64_t kMostBulkBytes = 224 * 1024;
inline std::int64_t bulk_bytes(const Problem& p) {
  return 4 * std::min(p.elements(), 4096 + 4 * p.w * p.channels + 8);
}

inline constexpr int kTimesteps = 1000;

// The words below `limit`, of 2^32, are a share of all.
inline std::uint64_t words_of(double share) {
  return static_cast<std::uint64_t>(std::llround(share * 0x1p32));
}

// A problem as kernels take it.
struct Recipe {
  PhiloxKeys keys;
  std::uint64_t first, shifted, flipped, unlabelled;
  std::uint32_t dataset;
  std::int32_t h, w, channels, classes;
  bool edm, cosine;
  double p_mean, p_std;
};
inline Recipe recipe_of(const Problem& p) {
  return {philox_keys(static_cast<std::uint64_t>(p.seed)),
          static_cast<std::uint64_t>(p.first),
          words_of(p.shifted),
          words_of(p.flipped),
          words_of(p.unlabelled),
          static_cast<std::uint32_t>(p.dataset),
          static_cast<std::int32_t>(p.h),
          static_cast<std::int32_t>(p.w),
          static_cast<std::int32_t>(p.channels),
          static_cast<std::int32_t>(p.classes),
          p.level == LevelKind::edm,
          p.schedule == Schedule::cosine,
          p.p_mean,
          p.p_std};
}

NOISEFLOOR_HD NoiseStream stream_of(const Recipe& r, const float* step) {
  return {r.keys, r.first, static_cast<std::uint32_t>(step[0]) + (static_cast<std::uint32_t>(step[1]) << 16)};
}

// What is drawn of one image but its noise.
struct Draw {
  std::uint32_t image, timestep;
  std::int32_t down, right;  // pixels from which it is taken
  bool flipped, unlabelled;
  double z;  // of the noise level

  NOISEFLOOR_HD bool moved() const { return flipped || down != 0 || right != 0; }
};

NOISEFLOOR_HD Draw draw(const Recipe& r, const NoiseStream& stream, std::uint64_t image_in_batch) {
  constexpr std::uint32_t kChoice = 0xffffffffu, kLevel = 0xfffffffeu;
  const Philox4 choice = noise_words(stream, image_in_batch, kChoice);
  const Philox4 level = noise_words(stream, image_in_batch, kLevel);
  Draw d{};
  d.image = static_cast<std::uint32_t>(multiply_wide(choice.v[0], r.dataset) >> 32);
  if (choice.v[1] < r.shifted) {
    d.down = static_cast<std::int32_t>((choice.v[2] >> 16) * 3 >> 16) - 1;
    d.right = static_cast<std::int32_t>((choice.v[2] & 0xffffu) * 3 >> 16) - 1;
  }
  d.flipped = choice.v[3] < r.flipped;
  d.unlabelled = level.v[0] < r.unlabelled;
  d.timestep = static_cast<std::uint32_t>(multiply_wide(level.v[1], kTimesteps) >> 32);
  d.z = box_muller_exact(level.v[2], level.v[3], 0);
  return d;
}

// Where the element `within` of the image that is made lies in the one that was chosen; -1: background comes in.
NOISEFLOOR_HD std::int32_t source_of(const Recipe& r, const Draw& d, std::int32_t within) {
  const std::int32_t pixel = within / r.channels, row = pixel / r.w, column = pixel - row * r.w;
  const std::int32_t from_row = row + d.down, from = (d.flipped ? r.w - 1 - column : column) + d.right;
  if (from_row < 0 || from_row >= r.h || from < 0 || from >= r.w) return -1;
  return (from_row * r.w + from) * r.channels + within - pixel * r.channels;
}

// ln of the product of 1 - beta up to a timestep. Linear: beta_s = 1e-4 + s d; the sum of ln(1 - beta_s) is its
// integral from half a step before to half a step behind (off by 2e-8 at most), of F(beta) = -sum of beta^(k+1) / (k
// (k+1)). Cosine: the product telescopes, but for the last beta, which is held at 0.999.
NOISEFLOOR_HD double log_alpha_bar(bool cosine, std::uint32_t timestep) {
  if (cosine) {
    constexpr double kOffset = 0.008, kQuarter = 1.5707963267948966;
    const bool last = timestep == kTimesteps - 1;
    const double u = static_cast<double>(last ? timestep : timestep + 1) / kTimesteps;
    const double ratio =
        std::cos((u + kOffset) / (1 + kOffset) * kQuarter) / std::cos(kOffset / (1 + kOffset) * kQuarter);
    return std::log(ratio * ratio * (last ? 1 - 0.999 : 1));
  }
  constexpr double kFirst = 1e-4, kStep = (0.02 - 1e-4) / (kTimesteps - 1);
  const auto integral = [](double b) {
    return -b * b * (1.0 / 2 + b * (1.0 / 6 + b * (1.0 / 12 + b * (1.0 / 20 + b * (1.0 / 30 + b / 42)))));
  };
  return (integral(kFirst + (timestep + 0.5) * kStep) - integral(kFirst - 0.5 * kStep)) / kStep;
}

struct Level {
  float alpha, sigma, level;  // the last as the network is told
};
NOISEFLOOR_HD Level level_of(const Recipe& r, const Draw& d) {
  if (r.edm) {
    const auto sigma = static_cast<float>(std::exp(r.p_std * d.z + r.p_mean));
    return {1, sigma, sigma};
  }
  const double log = log_alpha_bar(r.cosine, d.timestep);
  return {static_cast<float>(std::exp(log / 2)), static_cast<float>(std::sqrt(-std::expm1(log))),
          static_cast<float>(d.timestep)};
}

}  // namespace noisefloor::training_batch
