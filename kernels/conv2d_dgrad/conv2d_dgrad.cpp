#include "kernels/conv2d_dgrad/conv2d_dgrad.h"

#include <cmath>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv2d_dgrad {
namespace {

// Products that an element of dx sums, about.
std::int64_t terms(const Problem& p) {
  const std::int64_t taps = p.upsample ? 4 * p.taps() : (p.taps() + p.stride * p.stride - 1) / (p.stride * p.stride);
  return taps * p.cout;
}

void fields(Problem& p, FieldVisitor& visitor) {
  visitor.computes("scale (gradient of a convolution by its input) + residual_scale residual");
  visit_gradient(p, visitor);
  visitor.real("scale", "factor of the gradient", p.scale, -1e3, 1e3, 1.0);
  visitor.flag("residual", "whether residual, another gradient of x, is added", p.residual, false);
  visitor.real("residual_scale", "factor of residual", p.residual_scale, -1e3, 1e3, 1.0);
}

void check(const Problem& p) {
  check_shape(p);
  if (!p.residual && p.residual_scale != 1) refuse("'residual_scale' needs residual=1");
}

// The sums have a standard deviation of 1 away from the borders.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  convolution::let_extents(visit);
  visit.in("dy", t.dy, {"n", "out_h", "out_w", "cout"});
  // Not w, as conv2d's: the field w may have to be said, where a stride leaves two widths that fit dy.
  visit.in("weight", t.w, {"cout", "kernel", "kernel_w", "cin"},
           normal_fill(0, 1 / std::sqrt(static_cast<double>(terms(p)))));
  visit.when(p.residual, "residual").in("residual", t.residual, {"n", "h", "w", "cin"});
  visit.out("dx", t.dx, {"n", "h", "w", "cin"});
}

Cost cost(const Problem& p, DType dtype, double bytes) {
  return {p.flops(), bytes, product_pipe(dtype), p.upsample ? Shortcut::four_phases : Shortcut::none};
}

// Behind an upsample tensor cores round the sums of taps, as conv2d's do.
Tolerance tolerance(const Problem& p, DType dtype) {
  if (!p.upsample) return product_tolerance(dtype, terms(p));
  const double u = unit_roundoff(dtype), sums = product_sums_error(terms(p));
  return {6 * u + sums, 2 * u + sums};
}

// What meets an input pixel: for each tap the gradients of the outputs that read the pixel through it, summed.
std::vector<double> gradients_at(const Problem& p, const HostTensor& dy, std::int64_t pixel) {
  const std::int64_t x = pixel % p.w, y = pixel / p.w % p.h, image = pixel / p.w / p.h;
  // The output that reads `at` through tap 0 of the padded image, or -1.
  const auto output = [&](std::int64_t at, std::int64_t extent) {
    return at < 0 || at % p.stride != 0 || at / p.stride >= extent ? -1 : at / p.stride;
  };
  std::vector<double> sums(static_cast<std::size_t>(p.taps() * p.cout));
  for (std::int64_t uy = y * p.times(); uy < (y + 1) * p.times(); ++uy)
    for (std::int64_t ux = x * p.times(); ux < (x + 1) * p.times(); ++ux)
      for (std::int64_t tap = 0; tap < p.taps(); ++tap) {
        const std::int64_t oy = output(uy + p.pad - tap / p.kernel_w(), p.out_h());
        const std::int64_t ox = output(ux + p.pad_w() - tap % p.kernel_w(), p.out_w());
        if (oy < 0 || ox < 0) continue;
        const std::int64_t from = ((image * p.out_h() + oy) * p.out_w() + ox) * p.cout;
        for (std::int64_t co = 0; co < p.cout; ++co) sums[static_cast<std::size_t>(tap * p.cout + co)] += dy[from + co];
      }
  return sums;
}

// The oracle: the definition in conv2d_dgrad.h term by term, in double. It knows nothing of phases or flipped kernels.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor dy{dtype, t.dy}, w{dtype, t.w}, residual{dtype, t.residual};
  exact::each_element(elements, values, [&] {
    return [&, held = std::int64_t{-1}, gradients = std::vector<double>()](std::int64_t element) mutable {
      const std::int64_t pixel = element / p.cin, channel = element % p.cin;
      if (pixel != held) gradients = gradients_at(p, dy, held = pixel);
      double sum = 0;
      for (std::int64_t tap = 0; tap < p.taps(); ++tap)
        for (std::int64_t co = 0; co < p.cout; ++co)
          sum += gradients[static_cast<std::size_t>(tap * p.cout + co)] * w[(co * p.taps() + tap) * p.cin + channel];
      return p.scale * sum + (residual ? p.residual_scale * residual[element] : 0.0);
    };
  });
}

}  // namespace

constinit const Definition definition{"conv2d_dgrad", fields,    check,     visit_tensors,
                                      cost,           tolerance, reference, variants};

}  // namespace noisefloor::conv2d_dgrad
