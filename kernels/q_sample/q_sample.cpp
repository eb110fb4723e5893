#include "kernels/q_sample/q_sample.h"

#include <string>

namespace noisefloor::q_sample {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr const char* kNoiseNames[] = {"given", "drawn"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  visit.integer("batch", p.batch, 1, 1 << 20);
  visit.integer("elements", p.elements, 1, std::int64_t{1} << 31);  // its Philox blocks are numbered in 32 bits
  visit.enumeration("noise", p.noise, kNoiseNames, std::optional<Noise>(Noise::given));
  visit.flag("keep", p.keep, false);
  visit.integer("seed", p.seed, 0, INT64_MAX, 0);
  visit.integer("image", p.image, 0, INT64_MAX / 2, 0);
  visit.integer("step", p.step, 0, UINT32_MAX, 0);
  visit.enumeration("schedule", p.schedule, sampler_step::kScheduleNames, std::optional<Schedule>(Schedule::linear));
}

void Definition::check(const Problem& p) {
  if (p.total() > kMaxTotal)
    throw InvalidInput("problem: fields batch and elements make " + std::to_string(p.total()) +
                       " elements, more than 2^33");
  if (p.keep && p.noise != Noise::drawn) throw InvalidInput("problem: field keep is for noise=drawn, not given");
}

std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const std::vector<std::int64_t> images{p.batch, p.elements};
  const Fill unit{Fill::Kind::normal, 0, 1};
  std::vector<TensorSpec> specs{{"x0", images, dtype, Role::in, unit}};
  if (p.noise == Noise::given) specs.push_back({"noise", images, dtype, Role::in, unit});
  specs.push_back({"levels", {p.batch, 2}, DType::fp32, Role::in, {Fill::Kind::op, 0, 0}});
  specs.push_back({"x_t", images, dtype, Role::out, {}});
  if (p.keep) specs.push_back({"noise_out", images, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x0 = pointers.next();
  t.noise = pointers.next_if(p.noise == Noise::given);
  t.levels = static_cast<const float*>(pointers.next());
  t.x_t = pointers.next();
  t.noise_out = pointers.next_if(p.keep);
  return t;
}

// A product and a multiply-add; Box-Muller is half of: u 2, log 1, scale 1, root 1, angle 1, cos and sin 2, products 2.
Cost Definition::cost(const Problem& p, DType dtype) {
  double bytes = 0;
  for (const TensorSpec& spec : tensors(p, dtype)) bytes += static_cast<double>(spec.bytes());
  return {(p.noise == Noise::drawn ? 3 + 5 : 3) * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// One rounding, u, after two fp32 operations on terms that may cancel, up to six deviations out. Drawn noise z adds the
// error of Box-Muller (philox.h): its angle's functions 2^-20 |z|max, its radius 2^-18 |z|, |z| below 6.8.
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  const double arithmetic = 16 * unit_roundoff(DType::fp32);
  const double noise = p.noise == Noise::drawn ? 6.8 * (0x1p-20 + 0x1p-18) : 0;
  const double allowed = unit_roundoff(dtype) + arithmetic + noise;
  return {allowed, allowed};
}

void Definition::fill(const Problem& p, DType, std::size_t, void* data) {
  const bool exploding = p.schedule == Schedule::karras;
  const auto levels = sampler_step::noise_levels(
      p.schedule, sampler_step::kTrainingSteps,
      exploding ? sampler_step::Scaling::variance_exploding : sampler_step::Scaling::variance_preserving);
  auto* out = static_cast<Level*>(data);
  for (std::int64_t i = 0; i < p.batch; ++i) {
    const auto& level = levels[static_cast<std::size_t>((2 * i + 1) * sampler_step::kTrainingSteps / (2 * p.batch))];
    out[i] = {static_cast<float>(level.alpha), static_cast<float>(level.sigma)};
  }
}

}  // namespace noisefloor::q_sample
