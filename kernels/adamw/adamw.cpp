#include "kernels/adamw/adamw.h"

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::adamw {
namespace {

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("a step of AdamW over all parameters, with their moving average and working copy");
  visit.integer("elements", "parameters", p.elements, 1, std::int64_t{1} << 33);
  visit.real("beta1", "share of the gradients' mean that a step keeps", p.beta1, 0, 0.999999, 0.9);
  visit.real("beta2", "share of their squares' mean that a step keeps", p.beta2, 0, 0.999999, 0.999);
  visit.real("eps", "added to the root of that", p.eps, 1e-12, 1.0, 1e-8);
  visit.real("decay", "weight decay, times the rate, apart from the gradients (Loshchilov and Hutter 2019)", p.decay, 0,
             1.0, 0.0);
  visit.flag("ema", "also keep a moving average of the parameters", p.ema, false);
  visit.flag("copy", "also write the parameters in the row's dtype, for the network to read", p.copy, false);
}

void check(const Problem&) {}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents all{"elements"};
  visit.inout({"p", "the parameters"}, t.p, all);
  visit.inout({"m", "mean of the gradients"}, t.m, all);
  visit.inout({"v", "mean of their squares, not negative"}, t.v, all, normal_fill(1, 0.125));
  visit.when(p.ema, "ema").inout({"ema", "moving average of the parameters"}, t.ema, all);
  visit.in({"g", "the gradients"}, t.g, all);
  visit.in({"step", "learning rate, 1 / (1 - beta1^t), 1 / (1 - beta2^t) of step t from 1, share that ema keeps"},
           t.step, {"4"}, kFilledByOp);
  visit.in({"grad_scale", "factor of the gradients"}, t.grad_scale, {"1"}, kFilledByOp);
  visit.when(p.copy, "copy").out({"copy", "the parameters, rounded"}, t.copy, all);
}

// A multiply-add, a division and a root are 2, 1 and 1: scaled g, g^2, m and v 8, root 2, quotient 3, p 4; ema 3.
Cost cost(const Problem& p, DType, double bytes) {
  return {(17.0 + (p.ema ? 3 : 0)) * static_cast<double>(p.elements), bytes, Pipe::fma};
}

// The copy's rounding, and some ten operations in fp32 on terms that may cancel. 1 / (root + eps) is large where v is
// small, and its error with it.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double allowed = (p.copy ? unit_roundoff(dtype) : 0) + 32 * unit_roundoff(DType::fp32);
  return {allowed, allowed};
}

// The tenth step of a rate that shows in p, behind gradients that clipping halves.
void fill(const Problem& p, DType, std::size_t tensor, void* data) {
  auto* const out = static_cast<float*>(data);
  const std::size_t step = p.ema ? 5 : 4;
  out[0] = tensor == step ? 0.1f : 0.5f;
  if (tensor != step) return;
  out[1] = static_cast<float>(1 / (1 - std::pow(p.beta1, 10)));
  out[2] = static_cast<float>(1 / (1 - std::pow(p.beta2, 10)));
  out[3] = 0.75f;
}

void reference(const Problem& p, DType, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const double rate = t.step[0], correct1 = t.step[1], correct2 = t.step[2], keep = t.step[3];
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    const double g = static_cast<double>(t.grad_scale[0]) * t.g[i];
    const double m = p.beta1 * t.m[i] + (1 - p.beta1) * g, v = p.beta2 * t.v[i] + (1 - p.beta2) * g * g;
    const double updated = t.p[i] - rate * (p.decay * t.p[i] + correct1 * m / (std::sqrt(correct2 * v) + p.eps));
    values[e] = output == "m"     ? m
                : output == "v"   ? v
                : output == "ema" ? keep * t.ema[i] + (1 - keep) * updated
                                  : updated;
  }
}

}  // namespace

constinit const Definition definition{"adamw",   fields,    check,    visit_tensors, cost,
                                      tolerance, reference, variants, fill};

}  // namespace noisefloor::adamw
