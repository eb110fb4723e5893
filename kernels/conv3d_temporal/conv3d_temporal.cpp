#include "kernels/conv3d_temporal/conv3d_temporal.h"

#include <cmath>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv3d_temporal {
namespace {

constexpr int kTaps = 3;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

void fields(Problem& p, FieldVisitor& visitor) {
  visitor.computes("a 3x1x1 convolution along a video's frames, zeros outside, + bias + image_shift + residual");
  visitor.integer("batch", "videos", p.batch, 1, 32767);
  visitor.integer("frames", "frames of a video", p.frames, 1, 4096);
  visitor.integer("hw", "pixels of a frame, height * width", p.hw, 1, 1 << 24);
  visitor.integer("cin", "channels of x", p.cin, 1, 65536);
  visitor.integer("cout", "channels of y", p.cout, 1, 65536);
  visitor.flag("bias", "whether bias is added", p.bias, true);
  visitor.flag("image_shift", "whether image_shift, a row per video, is added", p.image_shift, false);
  visitor.flag("residual", "whether residual is added", p.residual, false);
}

void check(const Problem& p) {
  if (p.pixels() >= kMaxPixels)
    throw InvalidInput("problem: fields batch, frames and hw make " + std::to_string(p.pixels()) +
                       " pixels; at most 2^31 - 1");
  if (p.pixels() * std::max(p.cin, p.cout) > kMaxElements)
    throw InvalidInput("problem: fields batch, frames, hw and channels make a tensor of more than 2^40 elements");
}

// The sums have a standard deviation of 1 inside the video, whatever cin.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  static_assert(kTaps == 3);
  const Extents y{"batch", "frames", "hw", "cout"};
  visit.in("x", t.x, {"batch", "frames", "hw", "cin"});
  visit.in("w", t.w, {"cout", "3", "cin"}, normal_fill(0, 1 / std::sqrt(static_cast<double>(kTaps * p.cin))));
  visit.when(p.bias, "bias").in("bias", t.bias, {"cout"});
  visit.when(p.image_shift, "image_shift").in("image_shift", t.image_shift, {"batch", "cout"});
  visit.when(p.residual, "residual").in("residual", t.residual, y);
  visit.out("y", t.y, y);
}

// The zeros before and after the video included.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double outputs = static_cast<double>(p.pixels()) * static_cast<double>(p.cout);
  return {2 * outputs * static_cast<double>(kTaps * p.cin), bytes, product_pipe(dtype)};
}

Tolerance tolerance(const Problem& p, DType dtype) {
  return product_tolerance(dtype, kTaps * p.cin);
}

}  // namespace

constinit const Definition definition{"conv3d_temporal", fields,    check,   visit_tensors, cost,
                                      tolerance,         reference, variants};

}  // namespace noisefloor::conv3d_temporal
