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

}  // namespace noisefloor::q_sample
