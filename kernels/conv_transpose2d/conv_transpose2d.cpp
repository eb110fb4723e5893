#include "kernels/conv_transpose2d/conv_transpose2d.h"

#include <cmath>
#include <string>

namespace noisefloor::conv_transpose2d {
namespace {

constexpr const char* kActivationNames[] = {"none", "silu", "relu"};
constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

// Products that an output sums.
std::int64_t terms(const Problem& p) {
  return p.kernel * p.kernel / 4 * p.cin;
}

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visitor) {
  visitor.integer("n", p.n, 1, 32767);
  visitor.integer("h", p.h, 1, 1 << 20);
  visitor.integer("w", p.w, 1, 1 << 20);
  visitor.integer("cin", p.cin, 1, 65536);
  visitor.integer("cout", p.cout, 1, 65536);
  visitor.integer("kernel", p.kernel, 2, 4, 4);
  visitor.enumeration<Activation>("act", p.act, kActivationNames, Activation::none);
  visitor.flag("bias", p.bias, true);
}

void Definition::check(const Problem& p) {
  if (p.kernel == 3) throw InvalidInput("problem: field 'kernel' is 3; it must be 2 or 4");
  const std::int64_t pixels = 4 * p.n * p.h * p.w;  // of y
  if (pixels >= kMaxPixels)
    throw InvalidInput("problem: fields n, h and w make an output of " + std::to_string(pixels) +
                       " pixels; at most 2^31 - 1");
  if (pixels * std::max(p.cin, p.cout) > kMaxElements)
    throw InvalidInput("problem: fields n, h, w and channels make a tensor of more than 2^40 elements");
}

// The sums have a standard deviation of 1 away from the borders, whatever cin.
std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const Fill unit{Fill::Kind::normal, 0, 1};
  const Fill weights{Fill::Kind::normal, 0, 1 / std::sqrt(static_cast<double>(terms(p)))};
  std::vector<TensorSpec> specs;
  specs.push_back({"x", {p.n, p.h, p.w, p.cin}, dtype, Role::in, unit});
  specs.push_back({"w", {p.cout, p.kernel, p.kernel, p.cin}, dtype, Role::in, weights});
  if (p.bias) specs.push_back({"bias", {p.cout}, dtype, Role::in, unit});
  specs.push_back({"y", {p.n, 2 * p.h, 2 * p.w, p.cout}, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x = pointers.next();
  t.w = pointers.next();
  t.bias = pointers.next_if(p.bias);
  t.y = pointers.next();
  return t;
}

Cost Definition::cost(const Problem& p, DType dtype) {
  Cost cost;
  cost.flops =
      2.0 * static_cast<double>(4 * p.n * p.h * p.w) * static_cast<double>(p.cout) * static_cast<double>(terms(p));
  for (const TensorSpec& spec : tensors(p, dtype)) cost.bytes += static_cast<double>(spec.bytes());
  cost.pipe = dtype == DType::fp32 ? Pipe::fma : Pipe::tensor;
  return cost;
}

// As conv2d's: one rounding of y, fp32 sums, a few units of epilogue.
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  constexpr double kEpilogueUnits = 32;
  const double sums = (std::ceil(static_cast<double>(terms(p)) / 16) + kEpilogueUnits) * 0x1p-23;
  const double both = unit_roundoff(dtype) + sums;
  return {both, both};
}

}  // namespace noisefloor::conv_transpose2d
