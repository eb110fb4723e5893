#include "kernels/edm_precondition/edm_precondition.h"

#include <cmath>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"
#include "kernels/sampler_step/schedule.h"

namespace noisefloor::edm_precondition {
namespace {

constexpr const char* kSides[] = {"input", "output", "gradient"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("the scaling before and after a network in EDM (Karras et al. 2022, table 1)");
  visit.enumeration("side",
                    "input: before the network (c_in x and c_noise); output: after it (c_skip x + c_out f); gradient: "
                    "of f, c_out dd",
                    p.side, kSides);
  visit.integer("batch", "images", p.batch, 1, 1 << 20);
  visit.integer("elements", "elements of an image: channels * height * width", p.elements, 1, std::int64_t{1} << 31);
  visit.real("sigma_data", "standard deviation of the data, in the unit of x", p.sigma_data, 1e-3, 1e3, 0.5);
}

void check(const Problem& p) {
  if (p.total() > kMaxTotal)
    refuse("fields batch and elements make " + std::to_string(p.total()) + " elements, more than 2^33");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents images{"batch", "elements"};
  const bool input = p.side == Side::input, output = p.side == Side::output, gradient = p.side == Side::gradient;
  visit.when(!gradient, "side!=gradient").in("x", t.x, images);
  visit.when(gradient, "side=gradient").in({"dd", "gradient of d"}, t.x, images);
  visit.when(output, "side=output").in({"f", "the network's output"}, t.f, images);
  visit.in({"sigma", "noise of each image as a standard deviation in the unit of x, above 0"}, t.sigma, {"batch"},
           kFilledByOp);
  visit.when(input, "side=input").out({"y", "the network's input"}, t.y, images);
  visit.when(output, "side=output").out({"d", "the denoised image"}, t.y, images);
  visit.when(gradient, "side=gradient").out({"df", "gradient of the network's output"}, t.y, images);
  visit.when(input, "side=input").out({"c_noise", "ln(sigma) / 4, for the timestep's embedding"}, t.c_noise, {"batch"});
}

// A product, or a product and a multiply-add.
Cost cost(const Problem& p, DType, double bytes) {
  return {(p.side == Side::output ? 3 : 1) * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// One rounding, u, after some 8 fp32 operations, the coefficients' included, on terms that may cancel.
Tolerance tolerance(const Problem&, DType dtype) {
  const double allowed = unit_roundoff(dtype) + 32 * unit_roundoff(DType::fp32);
  return {allowed, allowed};
}

// The sigmas: image i has that in the middle of the i-th of `batch` equal parts of Karras's schedule, largest first.
void fill(const Problem& p, DType, std::size_t, void* data) {
  const auto sigmas = sampler_step::karras_sigmas(sampler_step::kTrainingSteps);
  auto* out = static_cast<float*>(data);
  for (std::int64_t i = 0; i < p.batch; ++i)
    out[i] = static_cast<float>(
        sigmas[static_cast<std::size_t>((2 * i + 1) * sampler_step::kTrainingSteps / (2 * p.batch))]);
}

// The oracle: the formulas in double, one element at a time.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, f{dtype, t.f};
  const bool wants_c_noise = output == "c_noise";
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    const double sigma = t.sigma[wants_c_noise ? i : i / p.elements];
    const double variance = sigma * sigma + p.sigma_data * p.sigma_data;
    if (wants_c_noise)
      values[e] = std::log(sigma) / 4;
    else if (p.side == Side::gradient)
      values[e] = sigma * p.sigma_data / std::sqrt(variance) * x[i];
    else if (f)
      values[e] = p.sigma_data * p.sigma_data / variance * x[i] + sigma * p.sigma_data / std::sqrt(variance) * f[i];
    else
      values[e] = x[i] / std::sqrt(variance);
  }
}

}  // namespace

constinit const Definition definition{"edm_precondition", fields,    check,    visit_tensors, cost,
                                      tolerance,          reference, variants, fill};

}  // namespace noisefloor::edm_precondition
