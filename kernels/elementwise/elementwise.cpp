#include "kernels/elementwise/elementwise.h"

#include <iterator>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::elementwise {
namespace {

constexpr const char* kOperations[] = {
    "silu_fma",     "add",           "geglu",         "relu",          "silu",           "cast", "nchw_to_nhwc",
    "nhwc_to_nchw", "silu_backward", "relu_backward", "gelu_backward", "geglu_backward", "scale"};
constexpr const char* kTargets[] = {"bf16", "fp16", "fp32"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;

// FLOP of one element; exponential, division, error function and conversion count one each. What only moves counts one
// per element, so that its rate can be drawn on a roofline.
constexpr double kFlops[] = {
    2 + 4,  // silu_fma: multiply-add; negate, exponential, addition, division
    2,      // add
    6,      // geglu: scale, error function, addition, halving, two products
    1,      // relu
    4,      // silu
    1,      // cast
    1,      // nchw_to_nhwc
    1,      // nhwc_to_nchw
    8,      // silu_backward: the sigmoid's 4; its complement, by x, plus 1, two products
    1,      // relu_backward
    9,      // gelu_backward: Phi's 4, phi's 3; their sum, by dy
    13,     // geglu_backward: as gelu_backward; gelu's product, by dy, and by the value
    1,      // scale
};
static_assert(std::size(kFlops) == std::size(kOperations));

}  // namespace

DType Problem::output_dtype(DType dtype) const {
  if (op != Operation::cast) return dtype;
  return to == Target::bf16 ? DType::bf16 : to == Target::fp16 ? DType::fp16 : DType::fp32;
}

namespace {

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("a pointwise operation, a cast, or a change of layout");
  visit.enumeration("op",
                    "silu_fma: silu(a + b c); add: (a + b) scale; geglu: 1st half of x * gelu(2nd); *_backward: x's "
                    "gradient; else of x alone",
                    p.op, kOperations);
  visit.integer("n", "images", p.n, 1, 65535, 1);
  visit.integer("hw", "pixels of an image, height * width, or tokens", p.hw, 1, std::int64_t{1} << 30, 1);
  visit.integer("channels", "channels of y; geglu_backward: of dy", p.channels, 1, std::int64_t{1} << 30);
  visit.flag("broadcast", "silu_fma: a and c have one row for each image", p.broadcast, false);
  visit.real("scale", "add, scale: factor of the sum, of x", p.scale, -1e6, 1e6, 1.0);
  visit.enumeration("to", "cast: the element type of y", p.to, kTargets, Target::bf16);
}

void check(const Problem& p) {
  const std::string op = kOperations[static_cast<int>(p.op)];
  if (p.hw > kMaxTotal / p.n || p.channels > kMaxTotal / (p.n * p.hw))
    refuse("fields n, hw and channels make more than 2^33 elements");
  if (p.broadcast && p.op != Operation::silu_fma) refuse("field broadcast is for op=silu_fma, not " + op);
  if (p.scale != 1 && p.op != Operation::add && p.op != Operation::scale)
    refuse("field scale is for op=add and op=scale, not " + op);
  if (p.to != Target::bf16 && p.op != Operation::cast) refuse("field to is for op=cast, not " + op);
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  using enum Operation;
  const Extents nhwc{"n", "hw", "channels"}, nchw{"n", "channels", "hw"}, row{"n", "channels"};
  const Extents halves{"n", "hw", "2*channels"};
  const bool fma = p.op == silu_fma;
  const auto rows = [&](const char* name, const void*& member, const Fill& fill) {
    visit.when(fma && !p.broadcast, "op=silu_fma & !broadcast").in(name, member, nhwc, fill);
    visit.when(fma && p.broadcast, "op=silu_fma & broadcast").in(name, member, row, fill);
  };
  rows("a", t.a, normal_fill(0, 0.5));
  visit.when(p.op == add, "op=add").in("a", t.a, nhwc);
  visit.when(fma || p.op == add, "op=silu_fma | op=add").in("b", t.b, nhwc);
  rows("c", t.c, normal_fill(1, 0.25));
  visit
      .when(p.op == relu || p.op == silu || p.op == cast || p.op == nhwc_to_nchw || p.op == scale ||
                (p.is_backward() && !p.gated()),
            "op=relu | op=silu | op=cast | op=nhwc_to_nchw | op=scale | op=silu_backward | op=relu_backward | "
            "op=gelu_backward")
      .in("x", t.a, nhwc);
  visit.when(p.gated(), "op=geglu | op=geglu_backward").in("x", t.a, halves);
  visit.when(p.op == nchw_to_nhwc, "op=nchw_to_nhwc").in("x", t.a, nchw);
  visit.when(p.is_backward(), "op=silu_backward | op=relu_backward | op=gelu_backward | op=geglu_backward")
      .in({"dy", "the gradient of the forward's output"}, t.b, nhwc);
  const DType y = p.output_dtype(visit.row_dtype());
  visit.when(p.op != nhwc_to_nchw && p.op != geglu_backward, "op!=nhwc_to_nchw & op!=geglu_backward")
      .out({"y", "a cast's in dtype `to`; *_backward: the gradient of x"}, t.y, nhwc, y);
  visit.when(p.op == geglu_backward, "op=geglu_backward").out("y", t.y, halves);
  visit.when(p.op == nhwc_to_nchw, "op=nhwc_to_nchw").out("y", t.y, nchw, y);
}

Cost cost(const Problem& p, DType, double bytes) {
  return {kFlops[static_cast<int>(p.op)] * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// One rounding of the result, u. Before it, fp32 arithmetic on a few terms of ordinary size: 32 roundings cover the
// cancellation of a + b * c and the approximations of exp and erf (7.5e-8 absolute, on values of up to 6). Where values
// only move, a quarter of a unit allows nothing but the same bits.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(p.output_dtype(dtype));
  if (p.transposes() || p.op == Operation::relu || p.op == Operation::relu_backward) return {u / 4, u / 4};
  const double arithmetic = p.op == Operation::cast ? 0 : 32 * unit_roundoff(DType::fp32);
  return {u + arithmetic, u + arithmetic};
}

// The oracle: each formula in double, one element at a time.
double value_of(const Problem& p, const HostTensor& a, const HostTensor& b, const HostTensor& c, std::int64_t i) {
  const std::int64_t row = i / p.channels, column = i % p.channels;  // but of *_nchw and geglu_backward
  switch (p.op) {
    case Operation::silu_fma: {
      const std::int64_t at = p.broadcast ? row / p.hw * p.channels + column : i;
      return exact::silu(a[at] + b[i] * c[at]);
    }
    case Operation::add:
      return (a[i] + b[i]) * p.scale;
    case Operation::geglu:
      return a[row * 2 * p.channels + column] * exact::gelu(a[(row * 2 + 1) * p.channels + column]);
    case Operation::relu:
      return exact::relu(a[i]);
    case Operation::silu:
      return exact::silu(a[i]);
    case Operation::cast:
      return a[i];
    case Operation::nchw_to_nhwc:
      return a[(row / p.hw * p.channels + column) * p.hw + row % p.hw];
    case Operation::nhwc_to_nchw: {
      const std::int64_t plane = i / p.hw;  // of all images
      return a[(plane / p.channels * p.hw + i % p.hw) * p.channels + plane % p.channels];
    }
    case Operation::silu_backward:
      return b[i] * exact::silu_slope(a[i]);
    case Operation::relu_backward:
      return a[i] <= 0 ? 0 : b[i];
    case Operation::gelu_backward:
      return b[i] * exact::gelu_slope(a[i]);
    case Operation::geglu_backward: {
      const double dy = b[row / 2 * p.channels + column];
      return dy * (row % 2 == 0 ? exact::gelu(a[i + p.channels]) : a[i - p.channels] * exact::gelu_slope(a[i]));
    }
    case Operation::scale:
      return p.scale * a[i];
  }
  return 0;
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor a{dtype, t.a}, b{dtype, t.b}, c{dtype, t.c};
  for (std::size_t e = 0; e < elements.size(); ++e) values[e] = value_of(p, a, b, c, elements[e]);
}

}  // namespace

constinit const Definition definition{"elementwise", fields,    check,     visit_tensors,
                                      cost,          tolerance, reference, variants};

}  // namespace noisefloor::elementwise
