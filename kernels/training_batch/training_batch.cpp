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
class Oracle {
 public:
  Oracle(const Problem& p, const Tensors& t)
      : p_(p), t_(t), recipe_(recipe_of(p)), stream_(stream_of(recipe_, t.step)) {
    if (p.level == LevelKind::ddpm)
      alpha_bars_ = sampler_step::cumulative_alphas(p.schedule == Schedule::linear ? sampler_step::Schedule::linear
                                                                                   : sampler_step::Schedule::cosine);
  }
  double level(std::int64_t image) const {
    const Draw d = drawn(image);
    return p_.level == LevelKind::edm ? sigma(d) : d.timestep;
  }
  double one_hot(std::int64_t element) const {
    const Draw d = drawn(element / p_.classes);
    return !d.unlabelled && static_cast<double>(t_.labels[d.image]) == static_cast<double>(element % p_.classes) ? 1
                                                                                                                 : 0;
  }
  double noise(std::int64_t element) const {
    return noise_exact(stream_, static_cast<std::uint64_t>(element / p_.elements()), element % p_.elements());
  }
  double x0(std::int64_t element) const {
    const Draw d = drawn(element / p_.elements());
    const std::int32_t source = source_of(recipe_, d, static_cast<std::int32_t>(element % p_.elements()));
    return source < 0 ? -1 : static_cast<double>(t_.images[d.image * p_.elements() + source]);
  }
  double x(std::int64_t element) const {
    const Draw d = drawn(element / p_.elements());
    if (p_.level == LevelKind::edm) return x0(element) + sigma(d) * noise(element);
    return std::sqrt(alpha_bars_[d.timestep]) * x0(element) + std::sqrt(1 - alpha_bars_[d.timestep]) * noise(element);
  }

 private:
  Draw drawn(std::int64_t image) const { return draw(recipe_, stream_, static_cast<std::uint64_t>(image)); }
  double sigma(const Draw& d) const { return std::exp(p_.p_std * d.z + p_.p_mean); }

  const Problem& p_;
  const Tensors& t_;
  Recipe recipe_;
  NoiseStream stream_;
  std::vector<double> alpha_bars_;
};

void reference(const Problem& p, DType, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const Oracle oracle(p, t);
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    values[e] = output == "x0"      ? oracle.x0(i)
                : output == "x"     ? oracle.x(i)
                : output == "noise" ? oracle.noise(i)
                : output == "level" ? oracle.level(i)
                                    : oracle.one_hot(i);
  }
}

}  // namespace

constinit const Definition definition{"training_batch", fields,    check,    visit_tensors, cost,
                                      tolerance,        reference, variants, fill};

}  // namespace noisefloor::training_batch
