#include "kernels/gemm/gemm.h"

#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/op.h"
#include "kernels/core/tensor.h"
#include "kernels/gemm/launchers.h"

namespace noisefloor::gemm {
namespace {

constexpr const char* kActivationNames[] = {"none", "silu", "gelu", "gelu_tanh", "geglu"};
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

constexpr std::int64_t kPartStep = 8;  // columns that a thread stores at once lie in one part

void check_elements(const char* fields, std::int64_t rows, std::int64_t columns) {
  if (rows * columns > kMaxElements)
    refuse("fields " + std::string(fields) + " make a tensor of " + std::to_string(rows) + " x " +
           std::to_string(columns) + " elements, more than 2^40");
}

void fields(Problem& problem, FieldVisitor& visitor) {
  visitor.computes(
      "act(scale a b^T + bias + image_shift) + residual, a linear layer, or its blend with another tensor");
  visitor.integer("m", "rows of a and d", problem.m, 1, kMaxExtent);
  visitor.integer("n", "columns of d", problem.n, 1, kMaxExtent);
  visitor.integer("k", "columns of a and b, the length of the sums", problem.k, 1, kMaxExtent);
  visitor.enumeration("act",
                      "activation; geglu: b has 2 * n rows, and d is the first half of the columns * gelu(second)",
                      problem.act, kActivationNames, Activation::none);
  visitor.real("scale", "factor of the product, before bias is added", problem.scale, -1e6, 1e6, 1.0);
  visitor.flag("bias", "whether bias is added", problem.bias, true);
  visitor.flag("image_shift", "whether image_shift, a row per image, is added before the activation; not geglu's",
               problem.image_shift, false);
  visitor.flag("residual", "whether residual is added after the activation", problem.residual, false);
  visitor.flag("blend", "whether d is share * blend + (1 - share) * what it were otherwise; with residual=1",
               problem.blend, false);
  visitor.integer("part_columns",
                  "columns of each part of d, one part after the other, for layers that share a; 0: one matrix",
                  problem.part_columns, 0, kMaxExtent, 0);
  visitor.integer("images", "images of image_shift, each m / images rows below the one before; divides m",
                  problem.images, 1, kMaxExtent, 1);
}

void check(const Problem& problem) {
  check_elements("m and k", problem.m, problem.k);
  check_elements("n and k", problem.b_rows(), problem.k);
  check_elements("m and n", problem.m, problem.n);
  if (problem.m % problem.images != 0)
    refuse("field images=" + std::to_string(problem.images) + " does not divide m=" + std::to_string(problem.m));
  if (problem.images > 1 && !problem.image_shift) refuse("field images goes with image_shift=1");
  if (problem.image_shift && problem.gated()) refuse("field image_shift does not go with act=geglu");
  if (problem.blend && !problem.residual) refuse("field blend goes with residual=1");
  if (problem.part_columns == 0) return;
  if (problem.part_columns % kPartStep != 0 || problem.n % problem.part_columns != 0)
    refuse("field part_columns must be a multiple of " + std::to_string(kPartStep) + " that divides n");
  if (problem.residual || problem.gated()) refuse("field part_columns goes with neither residual=1 nor act=geglu");
}

// B is scaled so that the product's elements have a standard deviation of 1, whatever k: they then use the whole range
// of every activation, and fp16 does not overflow.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  visit.let("b_rows", "n*(1 + (act=geglu))");
  visit.in("a", t.a, {"m", "k"});
  visit.in({"b", "the weights"}, t.b, {"b_rows", "k"}, normal_fill(0, 1 / std::sqrt(static_cast<double>(p.k))));
  visit.when(p.bias, "bias").in("bias", t.bias, {"b_rows"});
  visit.when(p.image_shift, "image_shift").in("image_shift", t.image_shift, {"images", "n"});
  visit.when(p.residual, "residual").in("residual", t.residual, {"m", "n"});
  visit.when(p.blend, "blend").in("blend", t.blend, {"m", "n"});
  visit.when(p.blend, "blend").in({"share", "of blend in d"}, t.share, {"1"}, normal_fill(0.5, 0.1));
  visit.when(p.part_columns == 0, "part_columns=0").out("d", t.d, {"m", "n"});
  visit.when(p.part_columns != 0, "part_columns>0").out("d", t.d, {"n/part_columns", "m", "part_columns"});
}

// The epilogue is not counted.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double products = static_cast<double>(p.m) * static_cast<double>(p.b_rows()) * static_cast<double>(p.k);
  return {2 * products, bytes, product_pipe(dtype)};
}

Tolerance tolerance(const Problem& p, DType dtype) {
  return product_tolerance(dtype, p.k);
}

double activate(Activation act, double x) {
  switch (act) {
    case Activation::none:
    case Activation::geglu:  // gates two sums; see below
      return x;
    case Activation::silu:
      return exact::silu(x);
    case Activation::gelu:
      return exact::gelu(x);
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return x;
}

// The oracle: every product and sum in double, one output element at a time.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor a{dtype, t.a}, b{dtype, t.b}, bias{dtype, t.bias};
  const HostTensor image_shift{dtype, t.image_shift}, residual{dtype, t.residual}, blend{dtype, t.blend};
  exact::each_element(elements, values, [&] {
    return [&, a_row = std::vector<float>(), held_row = std::int64_t{-1}](std::int64_t element) mutable {
      const std::int64_t part = p.part();
      const std::int64_t i = element / part % p.m;
      const std::int64_t j = element / (part * p.m) * part + element % part;
      if (i != std::exchange(held_row, i)) a_row = exact::floats(a, i * p.k, p.k);
      const auto linear = [&](std::int64_t column) {
        double sum = p.scale * exact::dot(a_row, exact::floats(b, column * p.k, p.k));
        if (bias) sum += bias[column];
        if (image_shift) sum += image_shift[i / p.rows_per_image() * p.n + column];
        return sum;
      };
      double value = p.gated() ? linear(j) * exact::gelu(linear(p.n + j)) : activate(p.act, linear(j));
      if (residual) value += residual[element];
      if (blend) value += t.share[0] * (blend[element] - value);
      return value;
    };
  });
}

}  // namespace

constinit const Definition definition{"gemm", fields, check, visit_tensors, cost, tolerance, reference, variants};

Status check_pointers(const Problem& problem, const Tensors& tensors) {
  return definition.check_pointers(problem, tensors);
}

}  // namespace noisefloor::gemm
