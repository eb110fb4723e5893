#include "kernels/training_batch/training_batch.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"
#include "kernels/sampler_step/schedule.h"

namespace noisefloor::training_batch {
namespace {

constexpr const char* kLevels[] = {"edm", "ddpm"};
constexpr const char* kSchedules[] = {"linear", "cosine"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;
static_assert(kTimesteps == sampler_step::kTrainingSteps);

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("the batch of a training step: images chosen and changed, noise levels, noise, labels");
  visit.integer("batch", "images that are made", p.batch, 1, 1 << 20);
  visit.integer("h", "height of an image", p.h, 1, 65536);
  visit.integer("w", "width of an image", p.w, 1, 65536);
  visit.integer("channels", "channels of an image", p.channels, 1, 65536);
  visit.integer("classes", "classes of the labels; 0: there are none", p.classes, 0, 1 << 20, 0);
  visit.integer("dataset", "images of the data, to choose from", p.dataset, 1, std::int64_t{1} << 31);
  visit.integer("first", "number of the batch's first image: an image depends on it and not on the batch", p.first, 0,
                INT64_MAX / 2, 0);
  visit.integer("seed", "seed of all draws, which depend on the step and the image's number too", p.seed, 0, INT64_MAX,
                0);
  visit.enumeration("level", "edm: log-normal sigma; ddpm: a timestep of the schedule", p.level, kLevels,
                    LevelKind::edm);
  visit.enumeration("schedule", "for level=ddpm", p.schedule, kSchedules, Schedule::linear);
  visit.real("p_mean", "for level=edm: mean of ln(sigma)", p.p_mean, -5, 5, -1.2);
  visit.real("p_std", "for level=edm: standard deviation of ln(sigma)", p.p_std, 0, 3, 1.2);
  visit.real("shifted", "share of the images that move by up to one pixel each way", p.shifted, 0, 1, 0.0);
  visit.real("flipped", "share of the images that are mirrored", p.flipped, 0, 1, 0.0);
  visit.real("unlabelled", "share of the images without a label, for guidance", p.unlabelled, 0, 1, 0.0);
}

void check(const Problem& p) {
  if (p.elements() >= std::int64_t{1} << 31)
    refuse("fields h, w and channels make " + std::to_string(p.elements()) + " elements, not fewer than 2^31");
  if (p.total() > kMaxTotal || p.dataset * p.elements() > kMaxTotal)
    refuse("fields batch and dataset make more than 2^33 elements of images");
  if (p.unlabelled > 0 && p.classes == 0) refuse("field unlabelled is for classes from 1 on");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents made{"batch", "h", "w", "channels"};
  visit.in({"images", "the data, from -1 to 1"}, t.images, {"dataset", "h", "w", "channels"}, normal_fill(0, 0.5));
  visit.when(p.classes > 0, "classes>0")
      .in({"labels", "class of each image, a whole number from 0 on"}, t.labels, {"dataset"}, kFilledByOp);
  visit.in({"step", "number of the step: its low 16 bits, and the rest"}, t.step, {"2"}, kFilledByOp);
  visit.out({"x0", "the images"}, t.x0, made);
  visit.out({"x", "the images with noise"}, t.x, made);
  visit.when(p.level == LevelKind::ddpm, "level=ddpm").out({"noise", "the noise, standard normal"}, t.noise, made);
  visit.out({"level", "sigma of each image, or its timestep"}, t.level, {"batch"});
  visit.when(p.classes > 0, "classes>0")
      .out({"one_hot", "1 at the image's class; all 0 without a label"}, t.one_hot, {"batch", "classes"});
}

// Of the noise, as in q_sample. Only chosen images are read.
Cost cost(const Problem& p, DType, double bytes) {
  const std::int64_t unread = p.dataset - std::min(p.dataset, p.batch);
  bytes -= 4.0 * static_cast<double>(unread) * static_cast<double>(p.elements() + (p.classes > 0 ? 1 : 0));
  return {8 * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// Outputs are fp32 (the rows' dtype is of zeros and ones): some operations, and the error of Box-Muller (philox.h),
// 2^-20 |z|max + 2^-18 |z| with |z| below 6.8, times the image's sigma. The largest sigma of a batch exceeds their root
// mean square by the root of the batch at most, and by no more than a log-normal's tail.
Tolerance tolerance(const Problem& p, DType) {
  const double noise = 16 * unit_roundoff(DType::fp32) + 6.8 * (0x1p-20 + 0x1p-18);
  const auto batch = static_cast<double>(p.batch);
  const double tail = p.p_std * (std::sqrt(2 * std::log(batch)) + 1 - p.p_std);
  const double largest = p.level == LevelKind::edm ? std::min(std::sqrt(batch), std::exp(std::max(tail, 0.0))) : 1;
  return {noise * std::max(largest, 1.0), noise};
}

void fill(const Problem& p, DType, std::size_t tensor, void* data) {
  auto* const out = static_cast<float*>(data);
  if (p.classes > 0 && tensor == 1) {
    for (std::int64_t i = 0; i < p.dataset; ++i) out[i] = static_cast<float>(i % p.classes);
  } else {
    out[0] = 7;  // step 65543
    out[1] = 1;
  }
}

// The oracle: levels of ddpm by the schedule's own table, all others as drawn.
void reference(const Problem& p, DType, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const Recipe recipe = recipe_of(p);
  const NoiseStream stream = stream_of(recipe, t.step);
  std::vector<double> alpha_bars;
  if (p.level == LevelKind::ddpm)
    alpha_bars = sampler_step::cumulative_alphas(p.schedule == Schedule::linear ? sampler_step::Schedule::linear
                                                                                : sampler_step::Schedule::cosine);
  const std::int64_t row = output == "level" ? 1 : output == "one_hot" ? p.classes : p.elements();
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t image = elements[e] / row, within = elements[e] % row;
    const Draw d = draw(recipe, stream, static_cast<std::uint64_t>(image));
    const double sigma = std::exp(p.p_std * d.z + p.p_mean);
    const auto x0 = [&] {
      const std::int32_t source = source_of(recipe, d, static_cast<std::int32_t>(within));
      return source < 0 ? -1 : static_cast<double>(t.images[d.image * p.elements() + source]);
    };
    const auto noise = [&] { return noise_exact(stream, static_cast<std::uint64_t>(image), within); };
    if (output == "level")
      values[e] = alpha_bars.empty() ? sigma : d.timestep;
    else if (output == "one_hot")
      values[e] = !d.unlabelled && t.labels[d.image] == static_cast<float>(within) ? 1 : 0;
    else if (output != "x")
      values[e] = output == "x0" ? x0() : noise();
    else if (alpha_bars.empty())
      values[e] = x0() + sigma * noise();
    else
      values[e] = std::sqrt(alpha_bars[d.timestep]) * x0() + std::sqrt(1 - alpha_bars[d.timestep]) * noise();
  }
}

}  // namespace

constinit const Definition definition{"training_batch", fields,    check,    visit_tensors, cost,
                                      tolerance,        reference, variants, fill};

}  // namespace noisefloor::training_batch
