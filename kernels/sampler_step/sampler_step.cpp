#include "kernels/sampler_step/sampler_step.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"
#include "kernels/core/noise_stream.h"
#include "kernels/core/philox.h"
#include "kernels/core/tensor.h"

namespace noisefloor::sampler_step {
namespace {

constexpr const char* kNoiseNames[] = {"none", "given", "drawn"};
constexpr const char* kHalfNames[] = {"first", "second"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;
constexpr std::int64_t kMaxImageElements = std::int64_t{1} << 31;  // its Philox blocks are numbered in 32 bits

NoiseLevel input_level(const Problem& problem) {
  const auto levels = noise_levels(problem.schedule, static_cast<int>(problem.steps), scaling(problem));
  return levels[static_cast<std::size_t>(problem.step + (problem.half == Half::second ? 1 : 0))];
}

// Standard deviation of latents of unit variance at this step's noise level, which is what the harness fills x with.
double input_deviation(const Problem& problem) {
  const NoiseLevel level = input_level(problem);
  return std::hypot(level.alpha, level.sigma);
}

// Root mean squares of an output and of the sum of its terms' sizes, over samples drawn as the harness draws inputs:
// their ratio says how much of the rounding error of the terms cancellation leaves visible.
struct Magnitudes {
  double x_next = 0, x_next_terms = 0;
  double history = 0, history_terms = 0;
};

Magnitudes sample_magnitudes(const Problem& problem, const CoefficientRow<double>& row) {
  constexpr int kSamples = 512;
  const double deviation = input_deviation(problem);
  Magnitudes sums;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    const Normal4 a = philox_normal4(0, 0, sample);
    const Normal4 b = philox_normal4(0, 1, sample);
    const double x = deviation * a.v[0];
    const double cond = problem.guided() ? a.v[2] : 0;
    const double raw = row.model_x * x + row.model * a.v[1] + row.model_cond * cond;
    const double x0 = std::clamp(raw, -row.limit, row.limit);
    const double x0_terms =
        std::fabs(row.model_x * x) + std::fabs(row.model * a.v[1]) + std::fabs(row.model_cond * cond);
    const double others[] = {row.x * x, row.history * a.v[3], row.noise * b.v[0], row.previous * b.v[1]};
    double value = row.x0 * x0;
    double terms = std::fabs(row.x0) * x0_terms;
    for (const double other : others) {
      value += other;
      terms += std::fabs(other);
    }
    const double kept = row.history_x * x + row.history_x0 * x0;
    const double kept_terms = std::fabs(row.history_x * x) + std::fabs(row.history_x0) * x0_terms;
    sums.x_next += value * value / kSamples;
    sums.x_next_terms += terms * terms / kSamples;
    sums.history += kept * kept / kSamples;
    sums.history_terms += kept_terms * kept_terms / kSamples;
  }
  for (double* sum : {&sums.x_next, &sums.x_next_terms, &sums.history, &sums.history_terms}) *sum = std::sqrt(*sum);
  return sums;
}

}  // namespace

bool Problem::reads_history() const {
  if (row().history == SolverRow::History::none) return false;
  const bool between_steps = row().history == SolverRow::History::step_before;
  return half == Half::second || (between_steps && step > 0 && (!last() || row().mixes_to_the_end));
}

bool Problem::writes_history() const {
  if (row().history == SolverRow::History::none || half == Half::second || last()) return false;
  const bool by_first_half = row().history == SolverRow::History::first_half;
  return by_first_half || step < steps - 2 || row().mixes_to_the_end || row().calls_of(step) == 2;
}

Scaling scaling(const Problem& problem) {
  const bool exploding = problem.schedule == Schedule::karras || problem.row().latents == SolverRow::Latents::exploding;
  return exploding ? Scaling::variance_exploding : Scaling::variance_preserving;
}

namespace {

void fields(Problem& problem, FieldVisitor& visitor) {
  visitor.computes(
      "one step of a sampler: guidance, x0 from the model's output, clamp, the solver's update, noise, blend");
  constexpr std::int64_t kMaxInteger = std::numeric_limits<std::int64_t>::max();
  visitor.integer("batch", "images, or frames", problem.batch, 1, 65536);
  visitor.integer("elements", "elements of an image: channels * height * width", problem.elements, 1,
                  kMaxImageElements);
  visitor.enumeration("solver", "solver of the coefficients; it decides whether history and noise are read",
                      problem.solver, solver_names());
  visitor.enumeration("prediction", "what model_output is: the noise, x0, or v = alpha noise - sigma x0",
                      problem.prediction, kPredictionNames, Prediction::noise);
  visitor.real("guidance", "scale w of m_uncond + w (m_cond - m_uncond); 0: one model output", problem.guidance, 0, 100,
               0.0);
  visitor.real("clamp", "x0 is clamped to [-clamp, clamp]; 0: it is not", problem.clamp, 0, 1e6, 0.0);
  visitor.enumeration("noise", "given: a tensor; drawn: by the kernel, with Philox4x32-10", problem.noise, kNoiseNames,
                      Noise::none);
  visitor.real("blend", "share of previous_frame in x_next; 0: no such tensor", problem.blend, 0, 1, 0.0);
  visitor.integer("steps", "steps of the whole schedule", problem.steps, 1, kTrainingSteps, 50);
  visitor.integer("step", "this step, from 0: the row of coefficients", problem.step, 0, kTrainingSteps - 1, 10);
  visitor.enumeration("schedule", "schedule of the coefficients in sweeps and tests; a call brings its own",
                      problem.schedule, kScheduleNames, Schedule::linear);
  visitor.real("eta", "for ddim: 0 is deterministic, 1 as ddpm", problem.eta, 0, 1, 0.0);
  visitor.integer("seed", "seed of drawn noise, which depends on image and step too", problem.seed, 0, kMaxInteger, 0);
  visitor.integer("image", "for drawn noise: the number of the first image", problem.image, 0, kMaxInteger, 0);
  visitor.enumeration("half", "for solvers with two calls a step: the proposal, or the correction after it",
                      problem.half, kHalfNames, Half::first);
}

void check(const Problem& problem) {
  if (problem.total() > kMaxTotal)
    refuse("fields batch and elements make " + std::to_string(problem.total()) + " elements, more than 2^33");
  if (problem.step >= problem.steps)
    refuse("field step is " + std::to_string(problem.step) + ", its range with steps=" + std::to_string(problem.steps) +
           " is 0 to " + std::to_string(problem.steps - 1));
  const SolverRow& row = problem.row();
  const std::string solver = row.name;
  if (row.latents == SolverRow::Latents::preserving && problem.schedule == Schedule::karras)
    refuse("field schedule is karras, which is variance exploding; solver=" + solver +
           " takes linear, scaled_linear or cosine");
  if (problem.eta != 0 && !row.takes_eta())
    refuse("field eta is for solver=" +
           listed(solvers_where([](const SolverRow& other) { return other.takes_eta(); }), "or") + ", not " + solver);
  if (problem.half == Half::second) {
    if (row.calls_of(0) == 1)
      refuse("field half is for solver=" +
             listed(solvers_where([](const SolverRow& other) { return other.calls_of(0) == 2; }), "or") + ", not " +
             solver);
    if (row.calls_of(problem.step) == 1) refuse("field half: of solver=" + solver + " only step 0 has a second half");
    if (problem.last()) refuse("field half: the last step has no second half");
  }
  const bool noisy = stochastic(row, problem.eta);
  if (noisy && problem.noise == Noise::none && !problem.last())
    refuse("field noise is none, but this step of solver=" + solver + " adds noise: give given or drawn");
  if (!noisy && problem.noise != Noise::none)
    refuse("field noise must be none: solver=" + solver + (row.takes_eta() ? " with eta=0" : "") + " adds no noise");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  static_assert(kRowLength == 12);
  const Extents latents{"batch", "elements"};
  visit.in("x", t.x, latents, normal_fill(0, visit.describes() ? input_deviation(p) : 1));  // which costs a schedule
  const TensorName model{"model_output", "with guidance, without condition first"};
  visit.when(!p.guided(), "!guidance").in(model, t.model_output, latents);
  visit.when(p.guided(), "guidance").in(model, t.model_output, {"2", "batch", "elements"});
  visit.when(p.noise == Noise::given, "noise=given & adds_noise(solver, eta)")
      .in({"noise", "standard normal"}, t.noise, latents);
  visit.when(p.reads_history(), "reads_history(solver, half, step, steps)")
      .in({"history", "history_out of the launch before"}, t.history, latents);
  visit.when(p.blended(), "blend").in("previous_frame", t.previous_frame, latents);
  visit.in({"coefficients",
            "a row a step, multipliers: model_x, model and model_cond of x0, limit of x0; x, x0, history, noise and "
            "previous of x_next; history_x and history_x0 of history_out; 0"},
           t.coefficients, {"steps", "12"}, kFilledByOp);
  visit.out("x_next", t.x_next, latents);
  visit.when(p.writes_history(), "writes_history(solver, half, step, steps)")
      .out("history_out", t.history_out, latents);
}

// Of the linear form, and of Box-Muller where noise is drawn (Philox itself is integer work). A step reads one row of
// the coefficients.
Cost cost(const Problem& problem, DType, double tensor_bytes) {
  double flops = 3 + 3;               // x0 and x_next: a product and a multiply-add each
  if (problem.guided()) flops += 2;   // one more multiply-add
  if (problem.clamp > 0) flops += 2;  // two comparisons
  if (problem.reads_history()) flops += 2;
  if (problem.noise != Noise::none) flops += 2;
  if (problem.blended()) flops += 2;
  if (problem.writes_history() && !problem.row().keeps_x0) flops += 3;
  if (problem.noise == Noise::drawn)
    flops += 5;  // half of: u 2, log 1, scale 1, root 1, angle 1, cos and sin 2, products 2
  const double other_rows = static_cast<double>(problem.steps - 1) * sizeof(Coefficients);
  return {flops * static_cast<double>(problem.total()), tensor_bytes - other_rows, Pipe::fma};
}

// The outputs are rounded once, by at most u(dtype). Before that come at most ten fp32 operations on terms that may
// cancel: 2^-24 times the sum of their sizes each, most of all where an input lies six deviations out. Drawn noise z
// adds the error of Box-Muller (philox.h): the angle's functions 2^-20 |z|max and the radius 2^-18 |z|, |z| below 6.8.
Tolerance tolerance(const Problem& problem, DType dtype) {
  const CoefficientRow<double> row = coefficient_table(problem)[static_cast<std::size_t>(problem.step)];
  const Magnitudes size = sample_magnitudes(problem, row);
  const auto ratio = [](double terms, double value) { return value > 0 ? std::max(terms / value, 1.0) : 1.0; };
  double cancellation = ratio(size.x_next_terms, size.x_next);
  if (problem.writes_history()) cancellation = std::max(cancellation, ratio(size.history_terms, size.history));
  const double rounding = 10 * 0x1p-24 * cancellation;
  const double noise = problem.noise == Noise::drawn && size.x_next > 0 ? std::fabs(row.noise) / size.x_next : 0.0;
  constexpr double kMaxNormal = 6.8;
  const double max_error = unit_roundoff(dtype) + 6 * rounding + noise * kMaxNormal * (0x1p-20 + 0x1p-18);
  // Rounding to nearest is off by u at worst and 0.42 u in the root mean square over numbers spread over a binade,
  // which a few numbers need not be.
  constexpr std::int64_t kMany = 1024;
  if (problem.total() < kMany) return {max_error, max_error};
  return {max_error, 0.6 * unit_roundoff(dtype) + rounding + noise * 0x1p-19};
}

// coefficient_table(problem) in fp32.
void fill(const Problem& problem, DType, std::size_t, void* data) {
  auto* out = static_cast<Coefficients*>(data);
  for (const CoefficientRow<double>& row : coefficient_table(problem)) *out++ = rounded(row);
}

// The oracle: the linear form of coefficients.h in double, one element at a time, from the coefficients as the tensor
// holds them.
void reference(const Problem& problem, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, model{dtype, t.model_output};
  const HostTensor noise{dtype, t.noise}, history{dtype, t.history}, previous{dtype, t.previous_frame};

  const NoiseStream stream = noise_stream(problem);
  const auto c = [&](int column) { return static_cast<double>(t.coefficients[problem.step * kRowLength + column]); };
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    double x0 = c(0) * x[i] + c(1) * model[i];
    if (problem.guided()) x0 += c(2) * model[problem.total() + i];
    const double limit = c(3);
    if (x0 > limit) x0 = limit;
    if (x0 < -limit) x0 = -limit;
    if (output == "history_out") {
      values[e] = c(9) * x[i] + c(10) * x0;
      continue;
    }
    double x_next = c(4) * x[i] + c(5) * x0;
    if (history) x_next += c(6) * history[i];
    if (noise) x_next += c(7) * noise[i];
    if (problem.noise == Noise::drawn)
      x_next += c(7) * noise_exact(stream, static_cast<std::uint64_t>(i / problem.elements), i % problem.elements);
    if (previous) x_next += c(8) * previous[i];
    values[e] = x_next;
  }
}

}  // namespace

constinit const Definition definition{"sampler_step", fields,    check,    visit_tensors, cost,
                                      tolerance,      reference, variants, fill};

}  // namespace noisefloor::sampler_step
