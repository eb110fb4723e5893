#include "kernels/grad_norm/grad_norm.h"

#include <cmath>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::grad_norm {
namespace {

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("the norm of all gradients, and the factor that clips them to a norm");
  visit.integer("elements", "gradients", p.elements, 1, std::int64_t{1} << 33);
  visit.real("clip", "the largest norm that is let through; 0: any", p.clip, 0, 1e9, 0.0);
}

constexpr double kLeastClip = 1e-30;  // fp32 makes less of the least 0, which clips nothing

void check(const Problem& p) {
  if (p.clip > 0 && p.clip < kLeastClip)
    refuse("field clip is below 1e-30; its range is 0 (any norm) and 1e-30 to 1e9");
}

void visit_tensors(const Problem&, Tensors& t, TensorVisitor& visit) {
  visit.in({"g", "all gradients, one behind the other"}, t.g, {"elements"});
  visit.out({"norm", "their Euclidean norm"}, t.norm, {"1"});
  visit.out({"scale", "what they are to be multiplied by"}, t.scale, {"1"});
}

Cost cost(const Problem& p, DType, double bytes) {
  return {2 * static_cast<double>(p.elements), bytes, Pipe::fma};
}

// Of a sum of squares in fp32, whose chains are short but in the largest problems.
Tolerance tolerance(const Problem& p, DType) {
  const double terms = static_cast<double>(p.elements) / static_cast<double>(kMostSums * 256);
  const double allowed = unit_roundoff(DType::fp32) * (64 + std::sqrt(terms));
  return {allowed, allowed};
}

void reference(const Problem& p, DType, const Tensors& t, std::string_view output, std::span<const std::int64_t>,
               std::span<double> values) {
  double sum = 0;
  for (std::int64_t i = 0; i < p.elements; ++i) sum += static_cast<double>(t.g[i]) * static_cast<double>(t.g[i]);
  const double norm = std::sqrt(sum);
  const double scale = std::isnan(norm) ? norm : p.clip > 0 && norm > p.clip ? p.clip / norm : 1;
  for (double& value : values) value = output == "norm" ? norm : scale;
}

}  // namespace

constinit const Definition definition{"grad_norm", fields, check, visit_tensors, cost, tolerance, reference, variants};

}  // namespace noisefloor::grad_norm
