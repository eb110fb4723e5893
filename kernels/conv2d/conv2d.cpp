#include "kernels/conv2d/conv2d.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv2d {
namespace {

constexpr std::int64_t kMaxKernel = 31;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

std::string text(std::int64_t value) {
  return std::to_string(value);
}

void check_tensor(const char* what, std::int64_t pixels, std::int64_t channels) {
  if (pixels >= kMaxPixels)
    throw InvalidInput("problem: fields n, h and w make " + std::string(what) + " of " + text(pixels) +
                       " pixels; at most 2^31 - 1");
  if (pixels * channels > kMaxElements)
    throw InvalidInput("problem: fields n, h, w and channels make " + std::string(what) + " of " + text(pixels) +
                       " x " + text(channels) + " elements; at most 2^40");
}

}  // namespace

std::int64_t Problem::slabs() const {
  return phases() * ((out_h() * out_w() / phases() + convolution::kSlabRows - 1) / convolution::kSlabRows);
}

namespace {

void fields(Problem& p, FieldVisitor& visitor) {
  visitor.computes("gain (act((conv(norm(x), w) + side) affine + image_shift) + residual), of channels-last images");
  visitor.integer("n", "images", p.n, 1, 32767);
  visitor.integer("h", "height of x in pixels", p.h, 1, 1 << 20);
  visitor.integer("w", "width of x in pixels", p.w, 1, 1 << 20);
  visitor.integer("cin", "channels of x", p.cin, 1, 65536);
  visitor.integer("cout", "channels of y", p.cout, 1, 65536);
  visitor.integer("kernel", "taps along each axis, odd", p.kernel, 1, kMaxKernel, 3);
  visitor.integer("stride", "pixels of x from one output to the next", p.stride, 1, 2, 1);
  visitor.integer("pad", "zeros on each side, in pixels; half the kernel if not given", p.pad, 0, kMaxKernel,
                  p.kernel / 2);  // fields are visited in order: kernel is known
  visitor.flag("upsample", "doubles x's height and width first (nearest); needs kernel 3, stride 1, pad 1", p.upsample,
               false);
  visitor.enumeration("norm", "normalises x first, by norm_coefficients; +silu: and applies SiLU", p.norm,
                      convolution::kNormNames, Norm::none);
  visitor.enumeration("act", "activation of the sums", p.act, convolution::kActivationNames, Activation::none);
  visitor.flag("bias", "whether bias is added to the sums", p.bias, true);
  visitor.flag("affine", "whether the sums are multiplied by scale and shift is added", p.affine, false);
  visitor.flag("image_shift", "whether image_shift is added before the activation", p.image_shift, false);
  visitor.flag("residual", "whether residual is added after the activation", p.residual, false);
  visitor.flag("residual_upsample", "doubles residual's height and width first (nearest)", p.residual_upsample, false);
  visitor.integer("side", "channels of side, whose 1x1 convolution (w_side) is added to the sums; 0: none", p.side, 0,
                  65536, 0);
  visitor.integer("side_skip", "channels of side_skip, which is concatenated after side; 0: none", p.side_skip, 0,
                  65536, 0);
  visitor.real("gain", "factor of the result", p.gain, -1e3, 1e3, 1.0);
  visitor.flag("stats", "also write mean and m2 of y, which groupnorm takes as slab_stats", p.stats, false);
  visitor.flag("patches", "slabs of the statistics are 8 x 8 pixels, not 64 consecutive ones", p.patches, false);
}

void check(const Problem& p) {
  if (p.kernel % 2 == 0)
    throw InvalidInput("problem: field 'kernel' is " + text(p.kernel) + "; it must be odd, from 1 to " +
                       text(kMaxKernel));
  if (p.upsample && (p.kernel != 3 || p.stride != 1 || p.pad != 1))
    throw InvalidInput("problem: 'upsample' needs kernel=3, stride=1 and pad=1");
  if (p.upsample && p.side > 0)
    throw InvalidInput(
        "problem: 'side' needs upsample=0: its pixels are those of the output, not of an upsampled input");
  if (p.side_skip > 0 && p.side == 0)
    throw InvalidInput("problem: 'side_skip' stands behind 'side' in a concatenation; it needs side of at least 1");
  const auto whole = [](std::int64_t extent) { return extent % convolution::kPatch == 0; };
  if (p.patches && (!p.stats || p.upsample || !whole(p.out_h()) || !whole(p.out_w())))
    throw InvalidInput(
        "problem: 'patches' needs stats=1, no upsample, and an output of whole patches of 8 x 8 pixels; it is " +
        text(p.out_h()) + " x " + text(p.out_w()));
  if (p.residual_upsample && (!p.residual || p.upsample || p.out_h() % 2 != 0 || p.out_w() % 2 != 0))
    throw InvalidInput(
        "problem: 'residual_upsample' needs residual=1, no upsample, and an output of even height and width; it is " +
        text(p.out_h()) + " x " + text(p.out_w()));
  const std::int64_t shortest = (p.upsample ? 2 : 1) * std::min(p.h, p.w) + 2 * p.pad;
  if (shortest < p.kernel)
    throw InvalidInput("problem: field 'kernel' is " + text(p.kernel) + ", larger than the padded image, " +
                       text(shortest));
  check_tensor("an input", p.n * p.h * p.w, p.cin);
  check_tensor("an output", p.n * p.out_h() * p.out_w(), std::max({p.cout, p.side, p.side_skip}));
}

// The sums have a standard deviation of 1 away from the borders, whatever cin, as each of their products has the same
// share; so has everything added to them, about.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  visit.let("out_h", "(h*(1 + upsample) + 2*pad - kernel)/stride + 1");
  visit.let("out_w", "(w*(1 + upsample) + 2*pad - kernel)/stride + 1");
  visit.let("phases", "1 + 3*upsample");
  visit.let("slabs", "phases*((out_h*out_w/phases + 63)/64)");
  static_assert(convolution::kSlabRows == 64);
  const auto weights = normal_fill(0, 1 / std::sqrt(static_cast<double>(p.terms())));
  visit.in("x", t.x, {"n", "h", "w", "cin"});
  visit.in("w", t.w, {"cout", "kernel", "kernel", "cin"}, weights);
  visit.when(p.bias, "bias").in("bias", t.bias, {"cout"});
  visit.when(p.affine, "affine").in("scale", t.scale, {"cout"}, normal_fill(1, 0.25));
  visit.when(p.affine, "affine").in("shift", t.shift, {"cout"});
  visit.when(p.image_shift, "image_shift").in("image_shift", t.image_shift, {"n", "cout"});
  visit.when(p.residual, "residual")
      .in("residual", t.residual, {"n", "out_h/(1 + residual_upsample)", "out_w/(1 + residual_upsample)", "cout"});
  visit.when(p.norm != Norm::none, "norm!=none")
      .in({"norm_coefficients", "multiplier and addend of each image and channel of x"}, t.norm_coefficients,
          {"n", "2", "cin"}, normal_fill(0.5, 0.5));
  visit.when(p.side > 0, "side>0").in("side", t.side, {"n", "out_h", "out_w", "side"});
  visit.when(p.side_skip > 0, "side_skip>0").in("side_skip", t.side_skip, {"n", "out_h", "out_w", "side_skip"});
  visit.when(p.side > 0, "side>0").in("w_side", t.w_side, {"cout", "side + side_skip"}, weights);
  visit.out("y", t.y, {"n", "out_h", "out_w", "cout"});
  const Extents slabs{"n", "slabs", "cout"};
  visit.when(p.stats, "stats")
      .out({"mean", "mean of y in each slab of 64 pixels (or patch) and each channel"}, t.mean, slabs);
  visit.when(p.stats, "stats").out({"m2", "sum of squared deviations from that mean"}, t.m2, slabs);
}

// Zeros of the padding included; with `upsample` the 4 taps of the four-phase form, not 9. The epilogue is not counted.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double outputs = static_cast<double>(p.n * p.out_h() * p.out_w()) * static_cast<double>(p.cout);
  const std::int64_t saved = p.upsample ? 5 * p.cin : 0;
  return {2 * outputs * static_cast<double>(p.terms() - saved), bytes, product_pipe(dtype),
          p.upsample ? Shortcut::four_phases : Shortcut::none};
}

// The bound of products (op.h).
//
// Summed weights (upsample) are rounded too, each by a relative error with a standard deviation of at most 0.41 u (u^2
// / 6, uniform mantissas), and independently, so the sum of k products is off by 0.41 u of its standard deviation: 0.6
// u in relative L2 with y's own rounding, 2.5 u at six standard deviations. scale and SiLU (slope up to 1.1) magnify
// it, and rms(y) may be somewhat below that of the sums: 6 u and 2 u.
//
// A norm in front rounds each input, as the oracle does; what lies between two numbers may be rounded to the other one,
// which is off by 2 u for at most one in a hundred.
//
// ReLU may leave little of an output of a few elements, so that rms(y) is far below that of the sums that were rounded.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(dtype);
  const double relu = p.act == convolution::Activation::relu ? 4 : 1;
  const double sums = relu * product_sums_error(p.terms());
  const double norm = p.norm == Norm::none ? 0 : 0.2 * u;
  if (p.upsample) return {6 * u + sums + norm, 2 * u + sums + norm};
  return {u + sums + norm, u + sums + norm};
}

}  // namespace

constinit const Definition definition{"conv2d", fields, check, visit_tensors, cost, tolerance, reference, variants};

convolution::Convolution describe(const Problem& p, Form form) {
  using namespace convolution;
  Convolution c = !p.upsample            ? plain(p.n, p.h, p.w, p.cin, p.cout, static_cast<int>(p.kernel),
                                                 static_cast<int>(p.stride), static_cast<int>(p.pad))
                  : form == Form::phased ? upsampled_phases(p.n, p.h, p.w, p.cin, p.cout)
                                         : upsampled_direct(p.n, p.h, p.w, p.cin, p.cout);
  c.norm = p.norm;
  c.act = p.act;
  c.bias = p.bias;
  c.affine = p.affine;
  c.image_shift = p.image_shift;
  c.residual = p.residual;
  c.side = static_cast<int>(p.side);
  c.side_skip = static_cast<int>(p.side_skip);
  c.stats = p.stats;
  c.patches = p.patches;
  c.residual_upsample = p.residual_upsample;
  c.gain = static_cast<float>(p.gain);
  return c;
}

convolution::Operands operands(const Tensors& t) {
  return {t.x,    t.w,         t.bias,   t.scale, t.shift, t.image_shift, t.residual, t.norm_coefficients,
          t.side, t.side_skip, t.w_side, t.y,     t.mean,  t.m2};
}

}  // namespace noisefloor::conv2d
