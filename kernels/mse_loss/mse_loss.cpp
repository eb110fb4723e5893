#include "kernels/mse_loss/mse_loss.h"

#include <cmath>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::mse_loss {
namespace {

constexpr const char* kWeights[] = {"none", "edm"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("the mean of weighted squared errors, and its gradient");
  visit.integer("batch", "images", p.batch, 1, 1 << 20);
  visit.integer("elements", "elements of an image: channels * height * width", p.elements, 1, std::int64_t{1} << 31);
  visit.enumeration("weight", "of an image's errors: 1, or by its noise level (Karras et al. 2022)", p.weight, kWeights,
                    Weight::none);
  visit.real("sigma_data", "for weight=edm: standard deviation of the data", p.sigma_data, 1e-3, 1e3, 0.5);
  visit.real("scale", "factor of dy and not of the loss: small gradients are lost in fp16", p.scale, 1e-6, 1e9, 1.0);
}

void check(const Problem& p) {
  if (p.total() > kMaxTotal)
    refuse("fields batch and elements make " + std::to_string(p.total()) + " elements, more than 2^33");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents images{"batch", "elements"};
  visit.in({"y", "the network's output"}, t.y, images);
  visit.in({"target", "what it should be"}, t.target, images);
  visit.when(p.weight == Weight::edm, "weight=edm")
      .in({"sigma", "noise of each image as a standard deviation, above 0"}, t.sigma, {"batch"}, kFilledByOp);
  visit.out({"loss", "the mean"}, t.loss, {"1"});
  visit.out({"dy", "the loss's gradient with respect to y"}, t.dy, images);
}

// A difference, two products, a multiply-add.
Cost cost(const Problem& p, DType, double bytes) {
  return {5 * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// dy is rounded once, after some 8 fp32 operations, and in fp16 to multiples of 2^-24: half of that is set against the
// size of what the harness's normal numbers make. The loss is a sum of positive terms, whose chains in fp32 are short.
Tolerance tolerance(const Problem& p, DType dtype) {
  double allowed = unit_roundoff(dtype) + 64 * unit_roundoff(DType::fp32);
  if (dtype == DType::fp16) allowed += 0x1p-25 * static_cast<double>(p.total()) / (2.8 * p.scale);
  return {allowed, allowed};
}

// The levels that EDM trains at, ln(sigma) of mean -1.2 and deviation 1.2.
void fill(const Problem& p, DType, std::size_t, void* data) {
  for (std::int64_t i = 0; i < p.batch; ++i)
    static_cast<float*>(data)[i] = std::exp(1.2f * philox_normal4(0, 0, static_cast<std::uint64_t>(i)).v[0] - 1.2f);
}

double exact_weight(const Problem& p, const Tensors& t, std::int64_t image) {
  if (p.weight == Weight::none) return 1;
  const double sigma = t.sigma[image], product = sigma * p.sigma_data;
  return (sigma * sigma + p.sigma_data * p.sigma_data) / (product * product);
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor y{dtype, t.y}, target{dtype, t.target};
  const auto total = static_cast<double>(p.total());
  if (output == "loss") {
    double sum = 0;
    for (std::int64_t image = 0; image < p.batch; ++image) {
      double squares = 0;
      for (std::int64_t i = image * p.elements; i < (image + 1) * p.elements; ++i)
        squares += (y[i] - target[i]) * (y[i] - target[i]);
      sum += exact_weight(p, t, image) * squares;
    }
    for (double& value : values) value = sum / total;
    return;
  }
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    values[e] = p.scale * 2 * exact_weight(p, t, i / p.elements) * (y[i] - target[i]) / total;
  }
}

}  // namespace

constinit const Definition definition{"mse_loss", fields,    check,    visit_tensors, cost,
                                      tolerance,  reference, variants, fill};

}  // namespace noisefloor::mse_loss
