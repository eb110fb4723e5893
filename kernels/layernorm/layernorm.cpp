#include "kernels/layernorm/layernorm.h"

#include <cmath>
#include <string>

namespace noisefloor::layernorm {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr const char* kFusions[] = {"none", "scale_shift"};

// Off zero, so that E[s^2] - E[s]^2 loses bits that a shifted sum keeps.
constexpr double kFillMean = 3;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  visit.integer("rows", p.rows, 1, std::int64_t{1} << 30);
  visit.integer("channels", p.channels, 1, 65536);
  visit.integer("images", p.images, 1, std::int64_t{1} << 30, 1);
  visit.enumeration("fusion", p.fusion, kFusions, std::optional<Fusion>(Fusion::none));
  visit.flag("residual", p.residual, false);
  visit.flag("affine", p.affine, true);
  visit.real("eps", p.eps, 1e-12, 1.0, 1e-5);
}

void Definition::check(const Problem& p) {
  if (p.rows % p.images != 0)
    throw InvalidInput("images=" + std::to_string(p.images) + " does not divide rows=" + std::to_string(p.rows));
  if (p.elements() > kMaxElements)
    throw InvalidInput("rows*channels is more than 2^36 elements; lower rows or channels");
}

std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const std::vector<std::int64_t> activations{p.rows, p.channels};
  std::vector<TensorSpec> specs{{"x", activations, dtype, Role::in, {Fill::Kind::normal, kFillMean, 1}}};
  if (p.residual) specs.push_back({"residual", activations, dtype, Role::in, {Fill::Kind::normal, 0, 1}});
  if (p.affine) {
    specs.push_back({"gamma", {p.channels}, dtype, Role::in, {Fill::Kind::normal, 1, 0.25}});
    specs.push_back({"beta", {p.channels}, dtype, Role::in, {Fill::Kind::normal, 0, 0.25}});
  }
  if (p.scale_shift()) {
    specs.push_back({"scale", {p.images, p.channels}, dtype, Role::in, {Fill::Kind::normal, 0, 0.25}});
    specs.push_back({"shift", {p.images, p.channels}, dtype, Role::in, {Fill::Kind::normal, 0, 0.25}});
  }
  if (p.residual) specs.push_back({"sum", activations, dtype, Role::out, {}});
  specs.push_back({"y", activations, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x = pointers.next();
  t.residual = pointers.next_if(p.residual);
  t.gamma = pointers.next_if(p.affine);
  t.beta = pointers.next_if(p.affine);
  t.scale = pointers.next_if(p.scale_shift());
  t.shift = pointers.next_if(p.scale_shift());
  t.sum = pointers.next_if(p.residual);
  t.y = pointers.next();
  return t;
}

// Sum 1, square 2, normalise 2; one addition of the residual, a multiply-add each of affine and scale-shift.
Cost Definition::cost(const Problem& p, DType dtype) {
  const double per_element = 5 + (p.residual ? 1 : 0) + (p.affine ? 2 : 0) + (p.scale_shift() ? 2 : 0);
  double bytes = 0;
  for (const TensorSpec& spec : tensors(p, dtype)) bytes += static_cast<double>(spec.bytes());
  return {per_element * static_cast<double>(p.elements()), bytes, Pipe::fma};
}

// The output's rounding, u; and fp32 arithmetic, whose error the normalisation multiplies by |mean| / stddev: a sum of
// L terms is off by about sqrt(L) roundings, what follows by some 16. From 32 channels on, the stddev of a row of
// normal numbers is near 1 (above 1/2); in shorter rows it may come out as small as eps lets it, sqrt(eps).
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(dtype);
  const double length = static_cast<double>(p.channels);
  const double condition = p.channels >= 32 ? kFillMean / 0.5 : kFillMean / std::sqrt(p.eps);
  const double arithmetic = unit_roundoff(DType::fp32) * (16 + std::sqrt(length)) * condition;
  return {u + arithmetic, u + arithmetic};
}

}  // namespace noisefloor::layernorm
