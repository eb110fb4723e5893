#include "kernels/gemm/gemm.h"

#include <cmath>
#include <string>

namespace noisefloor::gemm {
namespace {

constexpr const char* kActivationNames[] = {"none", "silu", "gelu", "gelu_tanh", "geglu"};
constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

void check_elements(const char* fields, std::int64_t rows, std::int64_t columns) {
  if (rows * columns > kMaxElements)
    throw InvalidInput("problem: fields " + std::string(fields) + " make a tensor of " + std::to_string(rows) + " x " +
                       std::to_string(columns) + " elements, more than 2^40");
}

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& problem, FieldVisitor& visitor) {
  visitor.integer("m", problem.m, 1, kMaxExtent);
  visitor.integer("n", problem.n, 1, kMaxExtent);
  visitor.integer("k", problem.k, 1, kMaxExtent);
  visitor.enumeration<Activation>("act", problem.act, kActivationNames, Activation::none);
  visitor.real("scale", problem.scale, -1e6, 1e6, 1.0);
  visitor.flag("bias", problem.bias, true);
  visitor.flag("residual", problem.residual, false);
}

void Definition::check(const Problem& problem) {
  check_elements("m and k", problem.m, problem.k);
  check_elements("n and k", problem.b_rows(), problem.k);
  check_elements("m and n", problem.m, problem.n);
}

// B is scaled so that the product's elements have a standard deviation of 1, whatever k: they then use the whole range
// of every activation, and fp16 does not overflow.
std::vector<TensorSpec> Definition::tensors(const Problem& problem, DType dtype) {
  const Fill unit{Fill::Kind::normal, 0, 1};
  const Fill weights{Fill::Kind::normal, 0, 1 / std::sqrt(static_cast<double>(problem.k))};
  std::vector<TensorSpec> specs;
  specs.push_back({"a", {problem.m, problem.k}, dtype, Role::in, unit});
  specs.push_back({"b", {problem.b_rows(), problem.k}, dtype, Role::in, weights});
  if (problem.bias) specs.push_back({"bias", {problem.b_rows()}, dtype, Role::in, unit});
  if (problem.residual) specs.push_back({"residual", {problem.m, problem.n}, dtype, Role::in, unit});
  specs.push_back({"d", {problem.m, problem.n}, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& problem, PointerCursor pointers) {
  Tensors tensors;
  tensors.a = pointers.next();
  tensors.b = pointers.next();
  tensors.bias = pointers.next_if(problem.bias);
  tensors.residual = pointers.next_if(problem.residual);
  tensors.d = pointers.next();
  return tensors;
}

Cost Definition::cost(const Problem& problem, DType dtype) {
  Cost cost;
  cost.flops =
      2.0 * static_cast<double>(problem.m) * static_cast<double>(problem.b_rows()) * static_cast<double>(problem.k);
  for (const TensorSpec& spec : tensors(problem, dtype)) cost.bytes += static_cast<double>(spec.bytes());
  cost.pipe = dtype == DType::fp32 ? Pipe::fma : Pipe::tensor;
  return cost;
}

// D is rounded once, by at most u(dtype). Before that, sums are fp32: a tensor core truncates its partial sum once per
// 16 products (2^-23 of its size), and an fp32 FMA chain of length k drifts by less than that. The epilogue (scale,
// bias, activation, residual) adds a few units, which the constant covers, with room for single outputs that cancel to
// near 0.
Tolerance Definition::tolerance(const Problem& problem, DType dtype) {
  constexpr double kEpilogueUnits = 32;
  const double sums = (std::ceil(static_cast<double>(problem.k) / 16) + kEpilogueUnits) * 0x1p-23;
  const double both = unit_roundoff(dtype) + sums;
  return {both, both};
}

}  // namespace noisefloor::gemm
