// edm_precondition: what stands in front of and behind the network F in Karras et al., "Elucidating the Design Space of
// Diffusion-Based Generative Models" (2022), eq. 7 and table 1, with a noise level sigma of its own for each image:
//
//   input    y[i] = c_in x[i],  c_in = 1 / sqrt(sigma^2 + sigma_data^2);  c_noise[i] = ln(sigma) / 4
//   output   d[i] = c_skip x[i] + c_out f[i]
//            c_skip = sigma_data^2 / (sigma^2 + sigma_data^2),  c_out = sigma sigma_data / sqrt(sigma^2 + sigma_data^2)
//   gradient df[i] = c_out dd[i], for the backward pass: from d's gradient to f's
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/core/philox.h"  // NOISEFLOOR_HD

namespace noisefloor::edm_precondition {

enum class Side { input, output, gradient };

struct Problem {
  Side side = Side::input;
  std::int64_t batch = 1;     // images
  std::int64_t elements = 1;  // of each: channels * height * width
  double sigma_data = 0.5;    // deviation of the data

  std::int64_t total() const { return batch * elements; }
};

// Device pointers (host pointers for the host variant), 16-byte aligned; T is the row's dtype. Null where the side has
// no such tensor.
struct Tensors {
  const void* x = nullptr;       // T [batch, elements]; gradient: tensor dd
  const void* f = nullptr;       // T [batch, elements], output: what the network said
  const float* sigma = nullptr;  // [batch], positive
  void* y = nullptr;         // T [batch, elements]: input: y, what the network takes; output: tensor d; gradient: df
  float* c_noise = nullptr;  // [batch], input: what the timestep embedding takes
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

// The coefficients of one image, for every variant: y is scales.x x + scales.f f.
struct Scales {
  float x, f;
};

// Of input and output; a gradient's factor is scales.f of the output.
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
