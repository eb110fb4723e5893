#include "kernels/groupnorm_backward/groupnorm_backward.h"

#include <cmath>

#include "kernels/core/cost.h"
#include "kernels/core/exact_norm.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr const char* kFusions[] = {"none", "silu", "silu+ss"};
constexpr double kFillMean = 3;  // of x, as groupnorm's

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("the gradients of groupnorm's x, gamma, beta, scale and shift, from that of its y");
  visit.integer("n", "images", p.n, 1, 32767);
  visit.integer("hw", "pixels of an image, height * width (* frames)", p.hw, 1, std::int64_t{1} << 30);
  visit.integer("channels", "channels of x", p.channels, 1, 65536);
  visit.integer("groups", "groups of channels, each normalised separately; divides channels", p.groups, 1, 65536);
  visit.enumeration("fusion", "what y was: norm; silu(norm); or silu(norm (1 + scale) + shift)", p.fusion, kFusions,
                    Fusion::none);
  visit.flag("packed", "for silu+ss: scale and shift are the halves of one tensor, scale_shift", p.packed, false);
  visit.flag("fp32_affine", "gamma and beta are fp32, as a training keeps them", p.fp32_affine, false);
  visit.flag("residual", "whether residual_scale residual is added to dx", p.residual, false);
  visit.real("residual_scale", "factor of residual", p.residual_scale, -1e6, 1e6, 1.0);
}

void check(const Problem& p) {
  groupnorm::definition.check(forward_of(p));
  if (p.group_size() < 2)
    refuse("hw * channels / groups is 1; its range is 2 and more: a group of one element has no gradient");
  if (p.residual_scale != 1 && !p.residual) refuse("residual_scale needs residual=1");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents image{"n", "hw", "channels"}, channels{"channels"}, row{"n", "channels"}, pair{"n", "2*channels"};
  const Extents groups{"n", "groups"};
  const Fill affine = normal_fill(0, 0.25);
  const bool packed = p.scale_shift() && p.packed, apart = p.scale_shift() && !p.packed;
  constexpr const char *kPacked = "fusion=silu+ss & packed", *kApart = "fusion=silu+ss & !packed";
  visit.in("x", t.x, image, normal_fill(kFillMean, 1));
  visit.in({"dy", "gradient of groupnorm's y"}, t.dy, image);
  const DType affine_dtype = p.affine_dtype(visit.row_dtype());
  visit.in({"gamma", "fp32 with fp32_affine, as beta"}, t.gamma, channels, normal_fill(1, 0.25), affine_dtype);
  visit.in("beta", t.beta, channels, affine, affine_dtype);
  visit.in({"mean", "of each group, as groupnorm leaves it"}, t.mean, groups, normal_fill(kFillMean, 0.1));
  visit.in({"rstd", "1 / sqrt(variance + eps) of each group, as groupnorm leaves it"}, t.rstd, groups,
           normal_fill(1, 0.05));
  visit.when(packed, kPacked).in("scale_shift", t.scale, pair, affine);
  visit.when(apart, kApart).in("scale", t.scale, row, affine);
  visit.when(apart, kApart).in("shift", t.shift, row, affine);
  visit.when(p.residual, "residual").in("residual", t.residual, image);
  visit.out("dx", t.dx, image);
  visit.out("dgamma", t.dgamma, channels);
  visit.out("dbeta", t.dbeta, channels);
  visit.when(packed, kPacked).out("dscale_shift", t.dscale, pair);
  visit.when(apart, kApart).out("dscale", t.dscale, row);
  visit.when(apart, kApart).out("dshift", t.dshift, row);
}

// Per element: xh 2, the two sums 3, dx 4; with silu v 2 and dv 8 (exponential, add, divide; 1 - s, multiply-add, two
// products); residual 2. Per image and channel some 12 for coefficients and sums.
Cost cost(const Problem& p, DType, double bytes) {
  const double per_element = 9 + (p.fusion == Fusion::none ? 0 : 10) + (p.residual ? 2 : 0);
  return {per_element * static_cast<double>(p.elements()) + 12 * static_cast<double>(p.n * p.channels), bytes,
          Pipe::fma};
}

// The output's rounding, and fp32 arithmetic, whose error the normalisation multiplies by |mean| / stddev. The terms of
// dx cancel to half their size as a rule.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double arithmetic =
      unit_roundoff(DType::fp32) * (16 + std::sqrt(static_cast<double>(p.group_size()))) * 2 * kFillMean / 0.5;
  const double both = unit_roundoff(dtype) + arithmetic;
  return {both, both};
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  exact::NormGradients(shape_of(p), dtype, p.affine_dtype(dtype), unpacked(p, dtype, t))
      .reference(output, elements, values);
}

}  // namespace

exact::NormShape shape_of(const Problem& p) {
  return {p.n,
          p.hw,
          p.channels,
          p.hw,
          p.channels_per_group(),
          p.scale_shift_stride(),
          p.fusion != Fusion::none,
          p.residual_scale,
          0};
}

constinit const Definition definition{
    "groupnorm_backward", fields, check, visit_tensors, cost, tolerance, reference, variants};

Tensors unpacked(const Problem& p, DType dtype, Tensors t) {
  const std::int64_t behind = p.channels * static_cast<std::int64_t>(size_of(dtype));
  if (p.packed) {
    t.shift = static_cast<const std::byte*>(t.scale) + behind;
    if (t.dscale != nullptr) t.dshift = static_cast<std::byte*>(t.dscale) + behind;
  }
  return t;
}

}  // namespace noisefloor::groupnorm_backward
