// The solvers, a row each: all that tells one from another. The op's fields, tensors, cost and coefficients, the
// sampling loop, the command line, `noisefloor list solvers` and the tests read it. To add one: its enumerator here,
// and in solvers.cpp its formulas and its row. What no kernel can run does not compile; a row that contradicts its
// formulas fails solvers_test.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/sampler_step/coefficients.h"

namespace noisefloor::sampler_step {

enum class Solver { ddpm, ddim, edm_euler, edm_heun, dpmpp_2m, pndm };

// A solver of two calls evaluates the model twice a step. first: a proposal. second: x is the proposal, and
// model_output and prediction are at the next noise level. The last step, which ends without noise, has no second half.
enum class Half { first, second };

// What a solver's formulas are made of. `before`: the level of the step before, where there was one.
struct SolverStep {
  std::optional<NoiseLevel> before;
  NoiseLevel now, next;
  double eta = 0;
  Half half = Half::first;
  int older = 0;  // past outputs beside history that there are, of SolverRow::older at most
  Prediction prediction = Prediction::x0;
};

// Coefficients in x_next of what older steps kept, the newest first.
using OlderTerms = std::array<double, 2>;

struct SolverRow {
  // Of the formulas: alpha^2 + sigma^2 = 1, alpha = 1, or as the schedule has them (karras: alpha = 1).
  enum class Latents { preserving, exploding, either };
  static constexpr const char* kLatentsNames[] = {"preserving", "exploding", "either"};
  enum class Noise { never, always, with_eta };
  static constexpr const char* kNoiseNames[] = {"never", "always", "with_eta"};
  // What a launch reads beside x and the model's output, a past output: the slope or x0 that the first half kept for
  // the second, or that a step kept for the next. The first step reads none, nor does the last, which ends without
  // noise, but for those that mix to the end.
  enum class History { none, first_half, step_before };
  static constexpr const char* kHistoryNames[] = {"none", "first_half", "step_before"};

  Solver solver;
  const char* name = "";
  const char* source = "";
  Latents latents = Latents::exploding;
  Noise noise = Noise::never;
  History history = History::none;
  bool keeps_x0 = false;  // history is x0 as it is, for which nothing is computed
  int calls = 1;          // of the model a step: 1 or 2
  int order = 1;          // of convergence, in the length of a step
  bool churns = false;    // noise may be added before a step (Karras et al. 2022, algorithm 2)
  int spare = 0;          // timesteps that are spaced beside those of the steps, and not visited: the last ones
  Schedule schedule = Schedule::karras;  // that its paper has it on
  // x, x0, history, noise, history_x and history_x0 of a step; the rest is the same for all solvers.
  CoefficientRow<double> (*formulas)(const SolverStep&) = nullptr;
  // A solver of one call whose first step takes two, as a solver of two calls has them.
  bool starts_twice = false;
  // Past outputs, kept by the steps before the one before, that the caller adds to x_next. A launch alone reads one.
  int older = 0;
  OlderTerms (*older_terms)(const SolverStep&) = nullptr;
  // Its last step may end at the level of timestep 0, where a checkpoint was trained so (diffusers' set_alpha_to_one).
  bool ends_as_trained = false;
  // Its last step, which ends without noise, mixes past outputs too.
  bool mixes_to_the_end = false;
  // As diffusers' Euler and Heun have it: timesteps of linspace are not rounded, levels between two are interpolated
  // in a straight line, and the first latents are noise of the first level alone, unless spacing is leading.
  bool on_sigmas = false;
  // As diffusers' DPM-Solver has it: of a level between two training timesteps the network is told the nearer one.
  bool whole_timesteps = false;
  // Of fewer steps the last is of first order also where it ends with noise (diffusers' lower_order_final).
  int lower_order_below = 0;

  int calls_of(std::int64_t step) const { return step == 0 && starts_twice ? 2 : calls; }
  bool takes_eta() const { return noise == Noise::with_eta; }
};

std::span<const SolverRow> solvers();  // in the order of Solver
const SolverRow& row_of(Solver solver);
std::span<const char* const> solver_names();
std::vector<std::string> solvers_where(bool (*so)(const SolverRow&));  // names

// Whether a step's formulas have a noise term. The last step ends without noise: there the term is 0, and may be left
// out.
bool stochastic(const SolverRow& row, double eta);

}  // namespace noisefloor::sampler_step
