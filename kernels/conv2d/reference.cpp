// The oracle: the definition in conv2d.h term by term, in double, one output element at a time. It knows nothing of
// implicit GEMM, phases or summed weights.
#include <algorithm>
#include <vector>

#include "kernels/conv2d/conv2d.h"
#include "kernels/core/exact.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv2d {
namespace {

double activate(Activation act, double x) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::silu:
      return exact::silu(x);
    case Activation::relu:
      return exact::relu(x);
  }
  return x;
}

// A number as `dtype` stores it.
double rounded(DType dtype, double value) {
  double storage = 0;
  store_element(dtype, &storage, 0, value);
  return load_element(dtype, &storage, 0);
}

// The inputs under the kernel at one output pixel, normed, zeros outside the image; floats hold every dtype exactly.
std::vector<float> patch_at(const Problem& p, const HostTensor& x, const float* norm, std::int64_t pixel) {
  const std::int64_t image = pixel / (p.out_h() * p.out_w());
  const std::int64_t oy = pixel / p.out_w() % p.out_h();
  const std::int64_t ox = pixel % p.out_w();
  const std::int64_t times = p.upsample ? 2 : 1;
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
  std::vector<float> inputs = patch_at(p, {dtype, t.x}, t.norm_coefficients, pixel);
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
  value = activate(p.act, value);
  if (residual) {
    const std::int64_t wide = p.out_w(), row = pixel / wide / 2, column = pixel % wide / 2;  // heights are even
    const std::int64_t added = p.residual_upsample ? row * (wide / 2) + column : pixel;
    value += residual[added * p.cout + channel];
  }
  return value * p.gain;
}

// The output pixels of slab `slab` of an image, as conv2d.h cuts slabs.
std::vector<std::int64_t> slab_pixels(const Problem& p, std::int64_t image, std::int64_t slab) {
  const std::int64_t times = p.upsample ? 2 : 1;
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

}  // namespace

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const std::int64_t k = p.kernel * p.kernel * p.cin, sides = p.side + p.side_skip;
  constexpr std::int64_t kElementsPerTask = 64;
  parallel_for(static_cast<std::int64_t>(elements.size()), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> weights(static_cast<std::size_t>(k + sides));
    std::vector<std::int64_t> pixels;         // of the element: one, or those of its slab
    std::vector<std::vector<float>> patches;  // at these pixels
    std::int64_t held = -1;
    for (std::int64_t e = begin; e < end; ++e) {
      const std::int64_t element = elements[static_cast<std::size_t>(e)];
      const std::int64_t place = element / p.cout;  // a pixel, or an image's slab
      const std::int64_t channel = element % p.cout;
      if (place != held) {
        held = place;
        pixels = output == "y" ? std::vector{place} : slab_pixels(p, place / p.slabs(), place % p.slabs());
        patches.clear();
        for (const std::int64_t pixel : pixels) patches.push_back(inputs_at(p, dtype, t, pixel));
      }
      load_floats(dtype, t.w, channel * k, k, weights.data());
      if (sides > 0) load_floats(dtype, t.w_side, channel * sides, sides, weights.data() + k);
      std::vector<double> outputs;
      for (std::size_t i = 0; i < pixels.size(); ++i)
        outputs.push_back(output_at(p, dtype, t, exact::dot(patches[i], weights), pixels[i], channel));
      double& value = values[static_cast<std::size_t>(e)];
      if (output == "y") {
        value = outputs[0];
      } else {
        for (double& y : outputs) y = rounded(dtype, y);  // the statistics are those of what was stored
        value = statistic(outputs, output == "m2");
      }
    }
  });
}

}  // namespace noisefloor::conv2d
