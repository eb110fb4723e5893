#include "kernels/conv3d_temporal/conv3d_temporal.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv3d_temporal {
namespace {

constexpr int kTaps = 3;

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
  convolution::check_extents("batch, frames and hw", "a tensor", p.pixels(), std::max(p.cin, p.cout));
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

// The oracle: the definition in conv3d_temporal.h term by term, in double.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, w{dtype, t.w}, bias{dtype, t.bias};
  const HostTensor image_shift{dtype, t.image_shift}, residual{dtype, t.residual};
  const auto value_of = [&](std::int64_t element) {
    const std::int64_t channel = element % p.cout;
    const std::int64_t place = element / p.cout;  // [batch, frame, pixel]
    const std::int64_t frame = place / p.hw % p.frames;
    double sum = 0;
    for (std::int64_t tap = 0; tap < kTaps; ++tap)
      if (frame + tap >= 1 && frame + tap <= p.frames)
        sum += exact::dot(exact::floats(x, (place + (tap - 1) * p.hw) * p.cin, p.cin),
                          exact::floats(w, (channel * kTaps + tap) * p.cin, p.cin));
    if (bias) sum += bias[channel];
    if (image_shift) sum += image_shift[place / (p.frames * p.hw) * p.cout + channel];
    if (residual) sum += residual[element];
    return sum;
  };
  exact::each_element(elements, values, [&] { return value_of; });
}

}  // namespace

constinit const Definition definition{"conv3d_temporal", fields,    check,   visit_tensors, cost,
                                      tolerance,         reference, variants};

}  // namespace noisefloor::conv3d_temporal
