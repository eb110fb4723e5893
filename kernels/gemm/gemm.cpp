#include "kernels/gemm/gemm.h"

#include <cmath>
#include <numbers>
#include <numeric>
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
constexpr const char* kLayoutNames[] = {"nt", "nn", "tn"};
constexpr const char* kTargetNames[] = {"same", "fp32"};
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
  visitor.enumeration("layout", "whether b lies as [k, n] (nn), and a as [k, m] too (tn), as gradients read them",
                      problem.layout, kLayoutNames, Layout::nt);
  visitor.enumeration("to", "element type of d: that of a, or fp32", problem.to, kTargetNames, Target::same);
  visitor.flag("row_sums", "layout=tn: whether the sums of a over k, times scale, are an output too", problem.row_sums,
               false);
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
  if (!problem.forward() &&
      (problem.act != Activation::none || problem.image_shift || problem.blend || problem.part_columns != 0))
    refuse("fields layout and to go with act=none, image_shift=0, blend=0 and part_columns=0");
  if (problem.row_sums && problem.layout != Layout::tn) refuse("field row_sums goes with layout=tn");
  if (problem.part_columns == 0) return;
  if (problem.part_columns % kPartStep != 0 || problem.n % problem.part_columns != 0)
    refuse("field part_columns must be a multiple of " + std::to_string(kPartStep) + " that divides n");
  if (problem.residual || problem.gated()) refuse("field part_columns goes with neither residual=1 nor act=geglu");
}

// B is scaled so that the product's elements have a standard deviation of 1, whatever k: they then use the whole range
// of every activation, and fp16 does not overflow.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  visit.let("b_rows", "n*(1 + (act=geglu))");
  const bool nt = p.layout == Layout::nt, tn = p.layout == Layout::tn;
  const Fill weights = normal_fill(0, 1 / std::sqrt(static_cast<double>(p.k)));
  visit.when(!tn, "layout!=tn").in("a", t.a, {"m", "k"});
  visit.when(tn, "layout=tn").in("a", t.a, {"k", "m"});
  visit.when(nt, "layout=nt").in({"b", "the weights"}, t.b, {"b_rows", "k"}, weights);
  visit.when(!nt, "layout!=nt").in({"b", "the weights"}, t.b, {"k", "n"}, weights);
  visit.when(p.bias, "bias").in("bias", t.bias, {"b_rows"});
  visit.when(p.image_shift, "image_shift").in("image_shift", t.image_shift, {"images", "n"});
  visit.when(p.residual, "residual").in("residual", t.residual, {"m", "n"});
  visit.when(p.blend, "blend").in("blend", t.blend, {"m", "n"});
  visit.when(p.blend, "blend").in({"share", "of blend in d"}, t.share, {"1"}, normal_fill(0.5, 0.1));
  const DType d = p.output_dtype(visit.row_dtype());
  visit.when(p.part_columns == 0, "part_columns=0").out({"d", "fp32 with to=fp32"}, t.d, {"m", "n"}, d);
  visit.when(p.part_columns != 0, "part_columns>0").out("d", t.d, {"n/part_columns", "m", "part_columns"});
  visit.when(p.row_sums, "row_sums").out({"row_sums", "of a over k, times scale"}, t.row_sums, {"m"});
}

// The epilogue is not counted.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double products = static_cast<double>(p.m) * static_cast<double>(p.b_rows()) * static_cast<double>(p.k);
  return {2 * products, bytes, product_pipe(dtype)};
}

Tolerance tolerance(const Problem& p, DType dtype) {
  return product_tolerance(p.output_dtype(dtype), p.k);
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

// The k numbers of row `row` of A, or of B for column `row` of D: side by side, or down a matrix of `rows` columns.
std::vector<float> line_of(const HostTensor& matrix, bool down, std::int64_t row, std::int64_t rows, std::int64_t k) {
  if (!down) return exact::floats(matrix, row * k, k);
  std::vector<float> line(static_cast<std::size_t>(k));
  for (std::int64_t i = 0; i < k; ++i) line[static_cast<std::size_t>(i)] = static_cast<float>(matrix[i * rows + row]);
  return line;
}

// The oracle: every product and sum in double, one output element at a time.
void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  const HostTensor a{dtype, t.a}, b{dtype, t.b}, bias{dtype, t.bias};
  const HostTensor image_shift{dtype, t.image_shift}, residual{dtype, t.residual}, blend{dtype, t.blend};
  const auto line_of_a = [&](std::int64_t row) { return line_of(a, p.layout == Layout::tn, row, p.m, p.k); };
  if (output == "row_sums") {
    for (std::size_t e = 0; e < elements.size(); ++e) {
      const std::vector<float> line = line_of_a(elements[e]);
      values[e] = p.scale * std::accumulate(line.begin(), line.end(), 0.0);
    }
    return;
  }
  exact::each_element(elements, values, [&] {
    return [&, a_row = std::vector<float>(), held_row = std::int64_t{-1}](std::int64_t element) mutable {
      const std::int64_t part = p.part();
      const std::int64_t i = element / part % p.m;
      const std::int64_t j = element / (part * p.m) * part + element % part;
      if (i != std::exchange(held_row, i)) a_row = line_of_a(i);
      const auto linear = [&](std::int64_t column) {
        double sum = p.scale * exact::dot(a_row, line_of(b, p.layout != Layout::nt, column, p.n, p.k));
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
