#include "kernels/conv2d/conv2d.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv2d {
namespace {

std::string text(std::int64_t value) {
  return std::to_string(value);
}

void fields(Problem& p, FieldVisitor& visitor) {
  visitor.computes("gain (act((conv(norm(x), w) + side) affine + image_shift) + residual), of channels-last images");
  visit_shape(p, visitor);
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
  check_shape(p);
  if (p.upsample && p.side > 0)
    refuse("'side' needs upsample=0: its pixels are those of the output, not of an upsampled input");
  if (p.side_skip > 0 && p.side == 0)
    refuse("'side_skip' stands behind 'side' in a concatenation; it needs side of at least 1");
  const auto whole = [](std::int64_t extent) { return extent % convolution::kPatch == 0; };
  if (p.patches && (!p.stats || p.upsample || !whole(p.out_h()) || !whole(p.out_w())))
    refuse("'patches' needs stats=1, no upsample, and an output of whole patches of 8 x 8 pixels; it is " +
           text(p.out_h()) + " x " + text(p.out_w()));
  if (p.residual_upsample && (!p.residual || p.upsample || p.out_h() % 2 != 0 || p.out_w() % 2 != 0))
    refuse("'residual_upsample' needs residual=1, no upsample, and an output of even height and width; it is " +
           text(p.out_h()) + " x " + text(p.out_w()));
  convolution::check_extents("n, h and w", "an output", p.out_pixels(), std::max(p.side, p.side_skip));
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
      .in({"norm_coefficients", "multiplier and addend of each image and channel of x"}, t.norm, {"n", "2", "cin"},
          normal_fill(0.5, 0.5));
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

// The oracle: the definition in conv2d.h term by term, in double, one output element at a time. It knows nothing of
// implicit GEMM, phases or summed weights.
// A number as `dtype` stores it.
double rounded(DType dtype, double value) {
  double storage = 0;
  store_element(dtype, &storage, 0, value);
  return load_element(dtype, &storage, 0);
}

// The inputs under the kernel at one output pixel, normed, zeros outside the image.
std::vector<float> patch_at(const Problem& p, const HostTensor& x, const float* norm, std::int64_t pixel) {
  const std::int64_t image = pixel / (p.out_h() * p.out_w());
  const std::int64_t oy = pixel / p.out_w() % p.out_h();
  const std::int64_t ox = pixel % p.out_w();
  const std::int64_t times = p.times();
  std::vector<float> patch(static_cast<std::size_t>(p.kernel * p.kernel * p.cin), 0.0f);
  for (std::int64_t ky = 0; ky < p.kernel; ++ky)
    for (std::int64_t kx = 0; kx < p.kernel; ++kx) {
      const std::int64_t y = oy * p.stride + ky - p.pad;
      const std::int64_t x_at = ox * p.stride + kx - p.pad;
      if (y < 0 || x_at < 0 || y >= p.h * times || x_at >= p.w * times) continue;
      const std::int64_t from = ((image * p.h + y / times) * p.w + x_at / times) * p.cin;
      float* const to = patch.data() + (ky * p.kernel + kx) * p.cin;
      load_floats(x.dtype, x.data, from, p.cin, to);
      if (p.norm == Norm::none) continue;
      const float* scale = norm + image * 2 * p.cin;
      for (std::int64_t c = 0; c < p.cin; ++c) {
        const double value = static_cast<double>(to[c]) * scale[c] + scale[p.cin + c];
        to[c] = static_cast<float>(rounded(x.dtype, p.norm == Norm::affine_silu ? exact::silu(value) : value));
      }
    }
  return patch;
}

// What the kernel meets at an output pixel: that, and the channels of the second source behind it.
std::vector<float> inputs_at(const Problem& p, DType dtype, const Tensors& t, std::int64_t pixel) {
  std::vector<float> inputs = patch_at(p, {dtype, t.x}, t.norm, pixel);
  for (const auto& [side, channels] : {std::pair(t.side, p.side), std::pair(t.side_skip, p.side_skip)})
    for (std::int64_t c = 0; c < channels; ++c)
      inputs.push_back(static_cast<float>(load_element(dtype, side, pixel * channels + c)));
  return inputs;
}

double output_at(const Problem& p, DType dtype, const Tensors& t, double value, std::int64_t pixel,
                 std::int64_t channel) {
  const HostTensor bias{dtype, t.bias}, scale{dtype, t.scale}, shift{dtype, t.shift};
  const HostTensor image_shift{dtype, t.image_shift}, residual{dtype, t.residual};
  if (bias) value += bias[channel];
  if (scale) value = value * scale[channel] + shift[channel];
  if (image_shift) value += image_shift[pixel / (p.out_h() * p.out_w()) * p.cout + channel];
  if (p.act == Activation::silu) value = exact::silu(value);
  if (p.act == Activation::relu) value = exact::relu(value);
  if (residual) {
    const std::int64_t wide = p.out_w(), row = pixel / wide / 2, column = pixel % wide / 2;  // heights are even
    const std::int64_t added = p.residual_upsample ? row * (wide / 2) + column : pixel;
    value += residual[added * p.cout + channel];
  }
  return value * p.gain;
}

// The output pixels of slab `slab` of an image, as conv2d.h cuts slabs.
std::vector<std::int64_t> slab_pixels(const Problem& p, std::int64_t image, std::int64_t slab) {
  const std::int64_t times = p.times();
  const std::int64_t width = p.out_w() / times;
  const std::int64_t count = p.out_h() / times * width;
  const std::int64_t per_phase = p.slabs() / p.phases();
  const std::int64_t phase = slab / per_phase;
  const std::int64_t first = slab % per_phase * convolution::kSlabRows;
  std::vector<std::int64_t> pixels;
  if (p.patches) {
    constexpr std::int64_t kSide = convolution::kPatch;
    const std::int64_t top = slab / (width / kSide) * kSide, left = slab % (width / kSide) * kSide;
    for (std::int64_t y = top; y < top + kSide; ++y)
      for (std::int64_t x = left; x < left + kSide; ++x) pixels.push_back((image * p.out_h() + y) * p.out_w() + x);
    return pixels;
  }
  for (std::int64_t i = first; i < std::min(first + convolution::kSlabRows, count); ++i) {
    const std::int64_t y = i / width * times + phase / times;
    const std::int64_t x = i % width * times + phase % times;
    pixels.push_back((image * p.out_h() + y) * p.out_w() + x);
  }
  return pixels;
}

double statistic(const std::vector<double>& values, bool m2) {
  double mean = 0;
  for (const double value : values) mean += value;
  mean /= static_cast<double>(values.size());
  if (!m2) return mean;
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return squares;
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const std::int64_t k = p.kernel * p.kernel * p.cin, sides = p.side + p.side_skip;
  exact::each_element(elements, values, [&] {
    // The pixels of an element, one or those of its slab, and what the kernel meets at each.
    return [&, held = std::int64_t{-1}, pixels = std::vector<std::int64_t>(),
            patches = std::vector<std::vector<float>>()](std::int64_t element) mutable {
      const std::int64_t place = element / p.cout;  // a pixel, or an image's slab
      const std::int64_t channel = element % p.cout;
      if (place != held) {
        held = place;
        pixels = output == "y" ? std::vector{place} : slab_pixels(p, place / p.slabs(), place % p.slabs());
        patches.clear();
        for (const std::int64_t pixel : pixels) patches.push_back(inputs_at(p, dtype, t, pixel));
      }
      std::vector<float> weights = exact::floats({dtype, t.w}, channel * k, k);
      if (sides > 0)
        std::ranges::copy(exact::floats({dtype, t.w_side}, channel * sides, sides), std::back_inserter(weights));
      std::vector<double> outputs;
      for (std::size_t i = 0; i < pixels.size(); ++i)
        outputs.push_back(output_at(p, dtype, t, exact::dot(patches[i], weights), pixels[i], channel));
      if (output == "y") return outputs[0];
      for (double& y : outputs) y = rounded(dtype, y);  // the statistics are those of what was stored
      return statistic(outputs, output == "m2");
    };
  });
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

}  // namespace noisefloor::conv2d
