// sampler_step: one update of a diffusion sampler over a batch of latents, in one pass: classifier-free guidance,
// conversion of the model's prediction to x0, clamp, the solver's update, history, noise, blend with a previous frame,
// and the cast.
//
// All tensors are dense and in the row's dtype (bf16, fp16, fp32), but the coefficients (fp32); arithmetic is fp32
// (double in the reference). Outputs are separate from inputs, so that a launch can be repeated.
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"
#include "kernels/sampler_step/solvers.h"

namespace noisefloor::sampler_step {

// Where the noise of a stochastic solver comes from: a tensor, or Philox4x32-10 inside the kernel.
enum class Noise { none, given, drawn };

struct Problem {
  std::int64_t batch = 0;     // images (or frames)
  std::int64_t elements = 0;  // of each image: channels * height * width
  Solver solver = Solver::ddpm;
  Prediction prediction = Prediction::noise;
  double guidance = 0;  // scale w of m_uncond + w (m_cond - m_uncond); 0: one model output
  double clamp = 0;     // x0 is held in [-clamp, clamp]; 0: not at all
  Noise noise = Noise::none;
  double blend = 0;         // x_next = (1 - blend) x_next + blend previous_frame; 0: no such tensor
  std::int64_t steps = 50;  // of the whole schedule
  std::int64_t step = 10;   // this one, from 0
  Schedule schedule = Schedule::linear;
  double eta = 0;         // of solvers with it: 0 deterministic, 1 as ddpm
  std::int64_t seed = 0;  // drawn noise is a function of (seed, image + index in batch, step, element) and nothing else
  std::int64_t image = 0;  // number of the batch's first image
  Half half = Half::first;

  std::int64_t total() const { return batch * elements; }
  bool guided() const { return guidance != 0; }
  bool blended() const { return blend != 0; }
  const SolverRow& row() const { return row_of(solver); }
  bool last() const { return step == steps - 1; }
  bool reads_history() const;
  bool writes_history() const;  // where the launch after this one reads it
};

Scaling scaling(const Problem& problem);

// The arguments of a launch; null where the problem has no such tensor. On the device for GPU variants, in host memory
// for `host`. 16-byte aligned, and inputs do not overlap outputs.
struct Tensors {
  const void* x = nullptr;               // [batch, elements]
  const void* model_output = nullptr;    // [batch, elements]; guided: [2, batch, elements], unconditional half first
  const void* noise = nullptr;           // [batch, elements]
  const void* history = nullptr;         // [batch, elements]: history_out of the launch before
  const void* previous_frame = nullptr;  // [batch, elements]
  const float* coefficients = nullptr;   // [steps, kRowLength]: rows of Coefficients
  void* x_next = nullptr;                // [batch, elements]
  void* history_out = nullptr;           // [batch, elements]
};

// The op. A C++ program calls a row of variants() directly: ask row.can_run(problem, dtype), then row.launch(problem,
// dtype, tensors, {}, context); no variant needs a workspace. launch returns cuda_error with the runtime's code when
// the launch fails, and never synchronises. The table behind Tensors::coefficients comes from fill (or
// coefficient_table).
using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

}  // namespace noisefloor::sampler_step
