// q_sample: the forward process of a diffusion model, each image of a batch at a noise level of its own:
//
//   x_t[i] = alpha_i x0[i] + sigma_i z[i],  z normal: given, or drawn by Philox4x32-10 inside the kernel.
//
// Drawn noise is that of sampler_step (kernels/core/noise_stream.h), a function of (seed, image + index in batch, step,
// element) alone; `keep` writes it out, as the target of training. Source: Ho et al., "Denoising Diffusion
// Probabilistic Models" (2020), eq. 4; with karras (alpha 1), Karras et al. (2022).
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/sampler_step/schedule.h"

namespace noisefloor::q_sample {

enum class Noise { given, drawn };
using sampler_step::Schedule;

struct Problem {
  std::int64_t batch = 1;     // images
  std::int64_t elements = 1;  // of each: channels * height * width
  Noise noise = Noise::given;
  bool keep = false;  // drawn: also write the noise
  std::int64_t seed = 0;
  std::int64_t image = 0;  // number of the batch's first image
  std::int64_t step = 0;   // of training, or of anything that wants new noise for the same image
  // What the levels of a benchmark or test are taken from; a caller of a variant passes his own.
  Schedule schedule = Schedule::linear;

  std::int64_t total() const { return batch * elements; }
};

// A row of the levels tensor.
struct Level {
  float alpha, sigma;
};

// Device pointers (host pointers for the host variant), 16-byte aligned; T is the row's dtype. Null where the problem
// has no such tensor.
struct Tensors {
  const void* x0 = nullptr;       // T [batch, elements]
  const void* noise = nullptr;    // T [batch, elements], given
  const float* levels = nullptr;  // [batch, 2]: alpha and sigma
  void* x_t = nullptr;            // T [batch, elements]
  void* noise_out = nullptr;      // T [batch, elements], keep
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

// How many vectors a thread of drawn_ring.cuh takes.
inline constexpr std::uint32_t kRingThreads = 256;
inline constexpr std::uint32_t kRingBlocksPerSm = 4;

// Blocks of an image of `vectors`, of `steps` vectors a thread.
inline std::uint32_t ring_tiles(std::uint32_t vectors, std::uint32_t steps) {
  return (vectors + steps * kRingThreads - 1) / (steps * kRingThreads);
}

// 1, 2, 4, 8 or 16: that with which the last of the SMs' rounds of blocks ends first, where a block takes the time of
// its steps and, as an estimate, of one more to begin.
inline std::uint32_t ring_steps(std::uint32_t vectors, std::int64_t images, int sm_count) {
  const std::int64_t resident = static_cast<std::int64_t>(kRingBlocksPerSm) * sm_count;
  const auto time = [&](std::uint32_t steps) {
    const std::int64_t blocks = images * ring_tiles(vectors, steps);
    return (blocks + resident - 1) / resident * (steps + 1);
  };
  std::uint32_t best = 1;
  for (std::uint32_t steps = 2; steps <= 16; steps *= 2)
    if (time(steps) < time(best)) best = steps;
  return best;
}

}  // namespace noisefloor::q_sample
