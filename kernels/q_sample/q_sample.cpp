#include "kernels/q_sample/q_sample.h"

#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/noise_stream.h"
#include "kernels/core/tensor.h"

namespace noisefloor::q_sample {
namespace {

constexpr const char* kNoiseNames[] = {"given", "drawn"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("alpha x0 + sigma noise, each image at its own noise level");
  visit.integer("batch", "images", p.batch, 1, 1 << 20);
  visit.integer("elements", "elements of an image: channels * height * width", p.elements, 1,
                std::int64_t{1} << 31);  // its Philox blocks are numbered in 32 bits
  visit.enumeration("noise", "given: a tensor; drawn: by the kernel, with Philox4x32-10", p.noise, kNoiseNames,
                    Noise::given);
  visit.flag("keep", "also write the noise that was drawn", p.keep, false);
  visit.integer("seed", "seed of drawn noise, which depends on image and step too", p.seed, 0, INT64_MAX, 0);
  visit.integer("image", "for drawn noise: the number of the first image", p.image, 0, INT64_MAX / 2, 0);
  visit.integer("step", "for drawn noise: another number gives other noise", p.step, 0, UINT32_MAX, 0);
  visit.enumeration("schedule", "schedule of the levels in sweeps and tests; a call brings its own levels", p.schedule,
                    sampler_step::kScheduleNames, Schedule::linear);
}

void check(const Problem& p) {
  if (p.total() > kMaxTotal)
    refuse("fields batch and elements make " + std::to_string(p.total()) + " elements, more than 2^33");
  if (p.keep && p.noise != Noise::drawn) refuse("field keep is for noise=drawn, not given");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents images{"batch", "elements"};
  visit.in("x0", t.x0, images);
  visit.when(p.noise == Noise::given, "noise=given").in({"noise", "standard normal"}, t.noise, images);
  visit.in({"levels", "alpha and sigma of each image"}, t.levels, {"batch", "2"}, kFilledByOp);
  visit.out("x_t", t.x_t, images);
  visit.when(p.keep, "keep").out({"noise_out", "the noise that was drawn"}, t.noise_out, images);
}

// A product and a multiply-add; Box-Muller is half of: u 2, log 1, scale 1, root 1, angle 1, cos and sin 2, products 2.
Cost cost(const Problem& p, DType, double bytes) {
  return {(p.noise == Noise::drawn ? 3 + 5 : 3) * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// One rounding, u, after two fp32 operations on terms that may cancel, up to six deviations out. Drawn noise z adds the
// error of Box-Muller (philox.h): its angle's functions 2^-20 |z|max, its radius 2^-18 |z|, |z| below 6.8.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double arithmetic = 16 * unit_roundoff(DType::fp32);
  const double noise = p.noise == Noise::drawn ? 6.8 * (0x1p-20 + 0x1p-18) : 0;
  const double allowed = unit_roundoff(dtype) + arithmetic + noise;
  return {allowed, allowed};
}

// The levels: image i has that in the middle of the i-th of `batch` equal parts of the schedule, noisiest first.
void fill(const Problem& p, DType, std::size_t, void* data) {
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

// The oracle: the formula in double, one element at a time, from the levels as the tensor holds them.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x0{dtype, t.x0}, noise{dtype, t.noise};
  const NoiseStream stream = noise_stream(p);
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e], image = i / p.elements;
    const double z = noise ? noise[i] : noise_exact(stream, static_cast<std::uint64_t>(image), i % p.elements);
    const double alpha = t.levels[2 * image], sigma = t.levels[2 * image + 1];
    values[e] = output == "noise_out" ? z : alpha * x0[i] + sigma * z;
  }
}

}  // namespace

constinit const Definition definition{"q_sample", fields,    check,    visit_tensors, cost,
                                      tolerance,  reference, variants, fill};

}  // namespace noisefloor::q_sample
