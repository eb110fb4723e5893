#include "kernels/elementwise/elementwise.h"

#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"

namespace noisefloor::elementwise {
namespace {

constexpr const char* kOperations[] = {"silu_fma", "add",  "geglu",        "relu",
                                       "silu",     "cast", "nchw_to_nhwc", "nhwc_to_nchw"};
constexpr const char* kTargets[] = {"bf16", "fp16", "fp32"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;
constexpr TensorName kA{"a", "[n, hw, channels], with broadcast [n, channels]; of silu_fma and add"};
constexpr TensorName kX{
    "x",
    "[n, hw, channels]; of nchw_to_nhwc [n, channels, hw], of geglu [n, hw, 2 * channels]; none of silu_fma and add"};

// Of one element; exponential, division, error function and conversion count one each. What only moves counts one per
// element, so that its rate can be drawn on a roofline.
double flops_per_element(Operation op) {
  switch (op) {
    case Operation::silu_fma:
      return 2 + 4;  // multiply-add; negate, exponential, addition, division
    case Operation::add:
      return 2;
    case Operation::geglu:
      return 6;  // scale, error function, addition, halving, two products
    case Operation::silu:
      return 4;
    default:
      return 1;
  }
}

[[noreturn]] void refuse(const std::string& message) {
  throw InvalidInput("problem: " + message);
}

}  // namespace

DType Problem::output_dtype(DType dtype) const {
  if (op != Operation::cast) return dtype;
  return to == Target::bf16 ? DType::bf16 : to == Target::fp16 ? DType::fp16 : DType::fp32;
}

namespace {

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("a pointwise operation, a cast, or a change of layout");
  visit.enumeration(
      "op",
      "silu_fma: silu(a + b c); add: (a + b) scale; geglu: first half of x * gelu(second); the others take x alone",
      p.op, kOperations);
  visit.integer("n", "images", p.n, 1, 65535, 1);
  visit.integer("hw", "pixels of an image, height * width, or tokens", p.hw, 1, std::int64_t{1} << 30, 1);
  visit.integer("channels", "channels of y", p.channels, 1, std::int64_t{1} << 30);
  visit.flag("broadcast", "silu_fma: a and c have one row for each image", p.broadcast, false);
  visit.real("scale", "add: factor of the sum", p.scale, 1e-6, 1e6, 1.0);
  visit.enumeration("to", "cast: the element type of y", p.to, kTargets, Target::bf16);
}

void check(const Problem& p) {
  const std::string op = kOperations[static_cast<int>(p.op)];
  if (p.hw > kMaxTotal / p.n || p.channels > kMaxTotal / (p.n * p.hw))
    refuse("fields n, hw and channels make more than 2^33 elements");
  if (p.broadcast && p.op != Operation::silu_fma) refuse("field broadcast is for op=silu_fma, not " + op);
  if (p.scale != 1 && p.op != Operation::add) refuse("field scale is for op=add, not " + op);
  if (p.to != Target::bf16 && p.op != Operation::cast) refuse("field to is for op=cast, not " + op);
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents nhwc{p.n, p.hw, p.channels}, nchw{p.n, p.channels, p.hw};
  const Extents rows = p.broadcast ? Extents{p.n, p.channels} : nhwc;
  switch (p.op) {
    case Operation::silu_fma:
      visit.in(kA, t.a, rows, normal_fill(0, 0.5));
      visit.in("b", t.b, nhwc);
      visit.in({"c", "for silu_fma, shaped as a"}, t.c, rows, normal_fill(1, 0.25));
      break;
    case Operation::add:
      visit.in(kA, t.a, nhwc);
      visit.in("b", t.b, nhwc);
      break;
    case Operation::geglu:
      visit.in(kX, t.a, {p.n, p.hw, 2 * p.channels});
      break;
    default:
      visit.in(kX, t.a, p.op == Operation::nchw_to_nhwc ? nchw : nhwc);
  }
  visit.out({"y", "[n, hw, channels]; of nhwc_to_nchw [n, channels, hw]"}, t.y,
            p.op == Operation::nhwc_to_nchw ? nchw : nhwc, p.output_dtype(visit.row_dtype()));
}

Cost cost(const Problem& p, DType, double bytes) {
  return {flops_per_element(p.op) * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// One rounding of the result, u. Before it, fp32 arithmetic on a few terms of ordinary size: 32 roundings cover the
// cancellation of a + b * c and the approximations of exp and erf (7.5e-8 absolute, on values of up to 6). Where values
// only move, a quarter of a unit allows nothing but the same bits.
Tolerance tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(p.output_dtype(dtype));
  if (p.transposes() || p.op == Operation::relu) return {u / 4, u / 4};
  const double arithmetic = p.op == Operation::cast ? 0 : 32 * unit_roundoff(DType::fp32);
  return {u + arithmetic, u + arithmetic};
}

}  // namespace

constinit const Definition definition{"elementwise", fields,    check,     visit_tensors,
                                      cost,          tolerance, reference, variants};

}  // namespace noisefloor::elementwise
