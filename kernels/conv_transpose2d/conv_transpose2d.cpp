#include "kernels/conv_transpose2d/conv_transpose2d.h"

#include <algorithm>
#include <cmath>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv_transpose2d {
namespace {

// Products that an output sums.
std::int64_t terms(const Problem& p) {
  return p.kernel * p.kernel / 4 * p.cin;
}

void fields(Problem& p, FieldVisitor& visitor) {
  visitor.computes("act(transposed convolution of stride 2 + bias), which doubles channels-last images");
  visitor.integer("n", "images", p.n, 1, 32767);
  visitor.integer("h", "height of x in pixels", p.h, 1, 1 << 20);
  visitor.integer("w", "width of x in pixels", p.w, 1, 1 << 20);
  visitor.integer("cin", "channels of x", p.cin, 1, 65536);
  visitor.integer("cout", "channels of y", p.cout, 1, 65536);
  visitor.integer("kernel", "taps along each axis: 2, or 4 with a pad of 1", p.kernel, 2, 4, 4);
  visitor.enumeration("act", "activation of the sums", p.act, convolution::kActivationNames, Activation::none);
  visitor.flag("bias", "whether bias is added", p.bias, true);
}

void check(const Problem& p) {
  if (p.kernel == 3) refuse("field 'kernel' is 3; it must be 2 or 4");
  convolution::check_extents("n, h and w", "an output", 4 * p.n * p.h * p.w, std::max(p.cin, p.cout));
}

// The sums have a standard deviation of 1 away from the borders, whatever cin.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  visit.in("x", t.x, {"n", "h", "w", "cin"});
  visit.in({"w", "PyTorch keeps it as [cin, cout, kernel, kernel]"}, t.w, {"cout", "kernel", "kernel", "cin"},
           normal_fill(0, 1 / std::sqrt(static_cast<double>(terms(p)))));
  visit.when(p.bias, "bias").in("bias", t.bias, {"cout"});
  visit.out("y", t.y, {"n", "2*h", "2*w", "cout"});
}

// The 1 (2x2) or 4 (4x4) taps that meet an output, zeros outside included.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double outputs = static_cast<double>(4 * p.n * p.h * p.w) * static_cast<double>(p.cout);
  return {2 * outputs * static_cast<double>(terms(p)), bytes, product_pipe(dtype)};
}

Tolerance tolerance(const Problem& p, DType dtype) {
  return product_tolerance(dtype, terms(p));
}

// The oracle: the definition in conv_transpose2d.h term by term, in double. It asks every input and tap near an output
// whether they meet there, and knows nothing of phases.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor x{dtype, t.x}, w{dtype, t.w}, bias{dtype, t.bias};
  const auto value_of = [&](std::int64_t element) {
    const std::int64_t channel = element % p.cout;
    const std::int64_t ox = element / p.cout % (2 * p.w);
    const std::int64_t oy = element / p.cout / (2 * p.w) % (2 * p.h);
    const std::int64_t image = element / p.cout / (4 * p.h * p.w);
    double sum = bias ? bias[channel] : 0;
    for (std::int64_t ky = 0; ky < p.kernel; ++ky)
      for (std::int64_t kx = 0; kx < p.kernel; ++kx) {
        const std::int64_t y2 = oy + p.pad() - ky;  // 2 iy
        const std::int64_t x2 = ox + p.pad() - kx;
        if (y2 < 0 || x2 < 0 || y2 % 2 != 0 || x2 % 2 != 0 || y2 / 2 >= p.h || x2 / 2 >= p.w) continue;
        sum += exact::dot(exact::floats(x, ((image * p.h + y2 / 2) * p.w + x2 / 2) * p.cin, p.cin),
                          exact::floats(w, ((channel * p.kernel + ky) * p.kernel + kx) * p.cin, p.cin));
      }
    return p.act == Activation::silu ? exact::silu(sum) : p.act == Activation::relu ? exact::relu(sum) : sum;
  };
  exact::each_element(elements, values, [&] { return value_of; });
}

}  // namespace

constinit const Definition definition{"conv_transpose2d", fields,    check,   visit_tensors, cost,
                                      tolerance,          reference, variants};

}  // namespace noisefloor::conv_transpose2d
