#include "kernels/conv2d_wgrad/conv2d_wgrad.h"

#include <numeric>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv2d_wgrad {
namespace {

void fields(Problem& p, FieldVisitor& visitor) {
  visitor.computes("scale (gradients of a convolution by weights, bias and image_shift), parameters' in fp32");
  visit_gradient(p, visitor);
  visitor.real("scale", "factor of the gradients", p.scale, -1e3, 1e3, 1.0);
  visitor.flag("bias", "whether dbias is written", p.bias, true);
  visitor.flag("image_shift", "whether dshift, of each image, is written", p.image_shift, false);
}

void check(const Problem& p) {
  check_shape(p);
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  convolution::let_extents(visit);
  visit.in("x", t.x, {"n", "h", "w", "cin"});
  visit.in("dy", t.dy, {"n", "out_h", "out_w", "cout"});
  visit.out("dw", t.dw, {"cout", "kernel", "kernel_w", "cin"});
  visit.when(p.bias, "bias").out("dbias", t.dbias, {"cout"});
  visit.when(p.image_shift, "image_shift").out("dshift", t.dshift, {"n", "cout"});
}

Cost cost(const Problem& p, DType dtype, double bytes) {
  return {p.flops(), bytes, product_pipe(dtype), p.upsample ? Shortcut::four_phases : Shortcut::none};
}

// Sums over pixels in fp32, and a rounding to the dtype: of dshift, and of all where a library has them so.
Tolerance tolerance(const Problem& p, DType dtype) {
  return product_tolerance(dtype, p.out_pixels());
}

// The gradients of output channel `channel`, of so many pixels from `first` on.
std::vector<double> gradients_of(const Problem& p, const HostTensor& dy, std::int64_t channel, std::int64_t first,
                                 std::int64_t count) {
  std::vector<double> gradients(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) gradients[static_cast<std::size_t>(i)] = dy[(first + i) * p.cout + channel];
  return gradients;
}

double weight_gradient(const Problem& p, const HostTensor& x, const std::vector<double>& gradients, std::int64_t tap,
                       std::int64_t channel) {
  double sum = 0;
  const std::int64_t out_w = p.out_w(), kx = tap % p.kernel_w() - p.pad_w();
  const double* gradient = gradients.data();
  for (std::int64_t out_row = 0; out_row < p.n * p.out_h(); ++out_row, gradient += out_w) {
    const std::int64_t uy = out_row % p.out_h() * p.stride + tap / p.kernel_w() - p.pad;
    if (uy < 0 || uy >= p.times() * p.h) continue;
    const std::int64_t row = (out_row / p.out_h() * p.h + uy / p.times()) * p.w;
    for (std::int64_t ox = 0; ox < out_w; ++ox) {
      const std::int64_t ux = ox * p.stride + kx;
      if (ux < 0 || ux >= p.times() * p.w) continue;
      sum += gradient[ox] * x[(row + (p.upsample ? ux / 2 : ux)) * p.cin + channel];
    }
  }
  return sum;
}

// The oracle: the definition in conv2d_wgrad.h term by term, in double.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, dy{dtype, t.dy};
  const std::int64_t row = p.taps() * p.cin, image_pixels = p.out_h() * p.out_w();
  exact::each_element(elements, values, [&] {
    return [&, held = std::int64_t{-1}, gradients = std::vector<double>()](std::int64_t element) mutable {
      if (output != "dw") {
        const bool of_image = output == "dshift";
        const auto all = gradients_of(p, dy, element % p.cout, of_image ? element / p.cout * image_pixels : 0,
                                      of_image ? image_pixels : p.out_pixels());
        return p.scale * std::accumulate(all.begin(), all.end(), 0.0);
      }
      if (element / row != held) gradients = gradients_of(p, dy, held = element / row, 0, p.out_pixels());
      return p.scale * weight_gradient(p, x, gradients, element % row / p.cin, element % p.cin);
    };
  });
}

}  // namespace

constinit const Definition definition{"conv2d_wgrad", fields,    check,     visit_tensors,
                                      cost,           tolerance, reference, variants};

}  // namespace noisefloor::conv2d_wgrad
