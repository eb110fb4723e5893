// Every solver as one linear form, so that one kernel runs them all and reads what differs from a row of a table in
// device memory. A sampling loop is then one CUDA graph: a node per step, each with its own row, and a schedule can be
// replaced without capturing again.
//
//   x0          = clamp(model_x * x + model * m + model_cond * m_cond, -limit, limit)
//   x_next      = x * x + x0 * x0 + history * h + noise * z + previous * p
//   history_out = history_x * x + history_x0 * x0
//
// where m is the model's output (the unconditional half under guidance), m_cond its conditional half, z standard normal
// noise, h what the step before kept, and p a previous frame. On the left of each product stands a member of
// CoefficientRow. The prediction type, guidance and blend are folded into the coefficients.
#pragma once

#include <optional>
#include <vector>

#include "kernels/sampler_step/schedule.h"

namespace noisefloor::sampler_step {

struct Problem;

// What the model predicts: the noise, the clean latent, or v = alpha noise - sigma x0.
enum class Prediction { noise, x0, v };
inline constexpr const char* kPredictionNames[] = {"noise", "x0", "v"};

// x0 = x x + output m, of a model's output m for the latents x at a level.
struct FromOutput {
  double x, output;
};
FromOutput x0_from(Prediction prediction, NoiseLevel at);

// 12 numbers, so that a row of floats is three 16-byte loads.
template <class Real>
struct alignas(16) CoefficientRow {
  Real model_x = 0, model = 0, model_cond = 0, limit = 0;  // limit: infinity without clamp
  Real x = 0, x0 = 0, history = 0, noise = 0;
  Real previous = 0, history_x = 0, history_x0 = 0, unused = 0;
};
using Coefficients = CoefficientRow<float>;
inline constexpr int kRowLength = 12;
static_assert(sizeof(Coefficients) == kRowLength * sizeof(float));

// As a kernel reads it.
Coefficients rounded(const CoefficientRow<double>& row);

// The row of one step between any two noise levels: what a caller with levels of his own (churn, his own sigmas) asks.
// Of `problem` it reads solver, prediction, guidance, clamp, eta, half and blend. `before` is the level before `now`,
// where there was one; `older`: how many past outputs the caller adds to x_next (SolverRow::older).
CoefficientRow<double> coefficient_row(const Problem& problem, std::optional<NoiseLevel> before, NoiseLevel now,
                                       NoiseLevel next, int older = 0);

// One row per step of the problem's schedule, problem.steps rows; problem.step is ignored. Formulas beside each solver
// in solvers.cpp.
std::vector<CoefficientRow<double>> coefficient_table(const Problem& problem);

}  // namespace noisefloor::sampler_step
