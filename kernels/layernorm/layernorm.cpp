#include "kernels/layernorm/layernorm.h"

#include <cmath>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::layernorm {
namespace {

constexpr const char* kFusions[] = {"none", "scale_shift"};

// Off zero, so that E[s^2] - E[s]^2 loses bits that a shifted sum keeps.
constexpr double kFillMean = 3;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 36;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("(x + residual - mean) rstd gamma + beta, mean and variance of each row");
  visit.integer("rows", "rows of all images, batch * tokens", p.rows, 1, std::int64_t{1} << 30);
  visit.integer("channels", "numbers of a row; each row is normalised separately", p.channels, 1, 65536);
  visit.integer("images", "images; the rows of an image share scale and shift; divides rows", p.images, 1,
                std::int64_t{1} << 30, 1);
  visit.enumeration("fusion", "scale_shift: y is norm (1 + scale) + shift", p.fusion, kFusions, Fusion::none);
  visit.flag("residual", "whether residual is added first, and the sum also written", p.residual, false);
  visit.flag("affine", "whether there are gamma and beta", p.affine, true);
  visit.real("eps", "added to the variance", p.eps, 1e-12, 1.0, 1e-5);
}

void check(const Problem& p) {
  if (p.rows % p.images != 0)
    refuse("images=" + std::to_string(p.images) + " does not divide rows=" + std::to_string(p.rows));
  if (p.elements() > kMaxElements) refuse("rows*channels is more than 2^36 elements; lower rows or channels");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents rows{"rows", "channels"}, images{"images", "channels"};
  const Fill affine = normal_fill(0, 0.25);
  visit.in("x", t.x, rows, normal_fill(kFillMean, 1));
  visit.when(p.residual, "residual").in("residual", t.residual, rows);
  visit.when(p.affine, "affine").in("gamma", t.gamma, {"channels"}, normal_fill(1, 0.25));
  visit.when(p.affine, "affine").in("beta", t.beta, {"channels"}, affine);
  visit.when(p.scale_shift(), "fusion=scale_shift").in("scale", t.scale, images, affine);
  visit.when(p.scale_shift(), "fusion=scale_shift").in("shift", t.shift, images, affine);
  visit.when(p.residual, "residual").out({"sum", "x + residual"}, t.sum, rows);
  visit.out("y", t.y, rows);
}

// Sum 1, square 2, normalise 2; one addition of the residual, a multiply-add each of affine and scale-shift.
Cost cost(const Problem& p, DType, double bytes) {
  const double per_element = 5 + (p.residual ? 1 : 0) + (p.affine ? 2 : 0) + (p.scale_shift() ? 2 : 0);
  return {per_element * static_cast<double>(p.elements()), bytes, Pipe::fma};
}

// The output's rounding, u; and fp32 arithmetic, whose error the normalisation multiplies by |mean| / stddev: a sum of
// L terms is off by about sqrt(L) roundings, what follows by some 16. From 32 channels on, the stddev of a row of
// normal numbers is near 1 (above 1/2); in shorter rows it may come out as small as eps lets it, sqrt(eps).
Tolerance tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(dtype);
  const double length = static_cast<double>(p.channels);
  const double condition = p.channels >= 32 ? kFillMean / 0.5 : kFillMean / std::sqrt(p.eps);
  const double arithmetic = unit_roundoff(DType::fp32) * (16 + std::sqrt(length)) * condition;
  return {u + arithmetic, u + arithmetic};
}

// The oracle: two passes in double over each row that a wanted element lies in.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, residual{dtype, t.residual};
  const HostTensor gamma{dtype, t.gamma}, beta{dtype, t.beta}, scale{dtype, t.scale}, shift{dtype, t.shift};
  const auto sum_at = [&](std::int64_t i) { return residual ? x[i] + residual[i] : x[i]; };

  std::int64_t known_row = -1;
  double mean = 0, rstd = 0;
  for (std::size_t e = 0; e < elements.size(); ++e) {
    const std::int64_t i = elements[e];
    if (output == "sum") {
      values[e] = sum_at(i);
      continue;
    }
    const std::int64_t row = i / p.channels, channel = i % p.channels;
    if (row != known_row) {
      known_row = row;
      double sum = 0, squares = 0;
      for (std::int64_t c = 0; c < p.channels; ++c) sum += sum_at(row * p.channels + c);
      mean = sum / static_cast<double>(p.channels);
      for (std::int64_t c = 0; c < p.channels; ++c) {
        const double deviation = sum_at(row * p.channels + c) - mean;
        squares += deviation * deviation;
      }
      rstd = 1 / std::sqrt(squares / static_cast<double>(p.channels) + p.eps);
    }
    double value = (sum_at(i) - mean) * rstd;
    if (gamma) value = value * gamma[channel] + beta[channel];
    if (scale) {
      const std::int64_t at = row / p.rows_per_image() * p.channels + channel;
      value = value * (1 + scale[at]) + shift[at];
    }
    values[e] = value;
  }
}

}  // namespace

constinit const Definition definition{"layernorm", fields, check, visit_tensors, cost, tolerance, reference, variants};

}  // namespace noisefloor::layernorm
