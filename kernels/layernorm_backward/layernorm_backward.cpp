#include "kernels/layernorm_backward/layernorm_backward.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/exact_norm.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::layernorm_backward {
namespace {

constexpr const char* kFusions[] = {"none", "scale_shift"};
constexpr double kFillMean = 3;  // of x, as layernorm's
constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("the gradients of layernorm's x, gamma, beta, scale and shift, from that of its y");
  visit.integer("rows", "rows of all images, batch * tokens", p.rows, 1, std::int64_t{1} << 30);
  visit.integer("channels", "numbers of a row; each row was normalised separately", p.channels, 2, 65536);
  visit.integer("images", "images; the rows of an image share scale and shift; divides rows", p.images, 1,
                std::int64_t{1} << 30, 1);
  visit.enumeration("fusion", "scale_shift: y was norm (1 + scale) + shift", p.fusion, kFusions, Fusion::none);
  visit.flag("affine", "whether there are gamma and beta", p.affine, true);
  visit.real("eps", "added to the variance", p.eps, 1e-12, 1.0, 1e-5);
  visit.flag("residual", "whether residual_scale residual is added to dx", p.residual, false);
  visit.real("residual_scale", "factor of residual", p.residual_scale, -1e6, 1e6, 1.0);
}

constexpr double kMostArithmetic = 0.25;  // beyond it a tolerance would tell nothing

// What of the gradient fp32 arithmetic may lose: two elements alone keep of it what eps is beside their variance.
double arithmetic(const Problem& p) {
  const auto length = static_cast<double>(p.channels);
  const double condition = p.channels >= 32 ? 2 * kFillMean / 0.5 : 8 * kFillMean / std::sqrt(p.eps);
  const double lost = p.channels == 2 ? 1 / p.eps : 1;
  return unit_roundoff(DType::fp32) * (16 + std::sqrt(length)) * condition * lost;
}

void check(const Problem& p) {
  if (p.rows % p.images != 0)
    refuse("images=" + std::to_string(p.images) + " does not divide rows=" + std::to_string(p.rows));
  if (p.channels == 2 && arithmetic(p) >= 1)
    refuse("eps=" + format_real(p.eps) + " is too small for rows of " + std::to_string(p.channels) +
           " channels: rounding would be as large as their gradient; raise eps or channels");
  if (p.residual_scale != 1 && !p.residual) refuse("residual_scale needs residual=1");
  if (p.elements() > kMaxElements) refuse("rows*channels is more than 2^36 elements; lower rows or channels");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents rows{"rows", "channels"}, images{"images", "channels"}, channels{"channels"};
  const Fill affine = normal_fill(0, 0.25);
  constexpr const char* kScaleShift = "fusion=scale_shift";
  visit.in("x", t.x, rows, normal_fill(kFillMean, 1));
  visit.in({"dy", "gradient of layernorm's y"}, t.dy, rows);
  visit.when(p.affine, "affine").in("gamma", t.gamma, channels, normal_fill(1, 0.25));
  visit.when(p.affine, "affine").in("beta", t.beta, channels, affine);
  visit.when(p.scale_shift(), kScaleShift).in("scale", t.scale, images, affine);
  visit.when(p.residual, "residual").in("residual", t.residual, rows);
  visit.out("dx", t.dx, rows);
  visit.when(p.affine, "affine").out("dgamma", t.dgamma, channels);
  visit.when(p.affine, "affine").out("dbeta", t.dbeta, channels);
  visit.when(p.scale_shift(), kScaleShift).out("dscale", t.dscale, images);
  visit.when(p.scale_shift(), kScaleShift).out("dshift", t.dshift, images);
}

// Per element: mean and variance 3, xh 2, the row's two sums 3, dx 4, one product each of gamma and 1 + scale, 3 for
// the sums over rows, 2 for the residual.
Cost cost(const Problem& p, DType, double bytes) {
  const double per_element =
      12 + (p.affine ? 1 : 0) + (p.scale_shift() ? 1 : 0) + (p.sums() ? 3 : 0) + (p.residual ? 2 : 0);
  return {per_element * static_cast<double>(p.elements()), bytes, Pipe::fma};
}

// As layernorm's: the output's rounding, and fp32 arithmetic, whose error the normalisation multiplies by |mean| /
// stddev. The terms of dx cancel: to half their size as a rule, in short rows to less, and in those of two to eps /
// variance, since two normalised numbers are 1 and -1 whatever x is.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double both = unit_roundoff(dtype) + std::min(arithmetic(p), kMostArithmetic);
  return {both, both};
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  exact::NormGradients(shape_of(p), dtype, dtype, t).reference(output, elements, values);
}

}  // namespace

exact::NormShape shape_of(const Problem& p) {
  return {p.images, p.rows_per_image(), p.channels, 1, p.channels, p.channels, false, p.residual_scale, p.eps};
}

constinit const Definition definition{
    "layernorm_backward", fields, check, visit_tensors, cost, tolerance, reference, variants};

}  // namespace noisefloor::layernorm_backward
