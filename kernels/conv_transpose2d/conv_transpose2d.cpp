#include "kernels/conv_transpose2d/conv_transpose2d.h"

#include <cmath>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::conv_transpose2d {
namespace {

constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

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
  if (p.kernel == 3) throw InvalidInput("problem: field 'kernel' is 3; it must be 2 or 4");
  const std::int64_t pixels = 4 * p.n * p.h * p.w;  // of y
  if (pixels >= kMaxPixels)
    throw InvalidInput("problem: fields n, h and w make an output of " + std::to_string(pixels) +
                       " pixels; at most 2^31 - 1");
  if (pixels * std::max(p.cin, p.cout) > kMaxElements)
    throw InvalidInput("problem: fields n, h, w and channels make a tensor of more than 2^40 elements");
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

}  // namespace

constinit const Definition definition{"conv_transpose2d", fields,    check,   visit_tensors, cost,
                                      tolerance,          reference, variants};

}  // namespace noisefloor::conv_transpose2d
