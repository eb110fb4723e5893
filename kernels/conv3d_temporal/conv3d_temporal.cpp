#include "kernels/conv3d_temporal/conv3d_temporal.h"

#include <cmath>
#include <string>

namespace noisefloor::conv3d_temporal {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr int kTaps = 3;
constexpr std::int64_t kMaxPixels = std::int64_t{1} << 31;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visitor) {
  visitor.integer("batch", p.batch, 1, 32767);
  visitor.integer("frames", p.frames, 1, 4096);
  visitor.integer("hw", p.hw, 1, 1 << 24);
  visitor.integer("cin", p.cin, 1, 65536);
  visitor.integer("cout", p.cout, 1, 65536);
  visitor.flag("bias", p.bias, true);
  visitor.flag("residual", p.residual, false);
}

void Definition::check(const Problem& p) {
  if (p.pixels() >= kMaxPixels)
    throw InvalidInput("problem: fields batch, frames and hw make " + std::to_string(p.pixels()) +
                       " pixels; at most 2^31 - 1");
  if (p.pixels() * std::max(p.cin, p.cout) > kMaxElements)
    throw InvalidInput("problem: fields batch, frames, hw and channels make a tensor of more than 2^40 elements");
}

// The sums have a standard deviation of 1 inside the video, whatever cin.
std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const Fill unit{Fill::Kind::normal, 0, 1};
  const Fill weights{Fill::Kind::normal, 0, 1 / std::sqrt(static_cast<double>(kTaps * p.cin))};
  const std::vector<std::int64_t> output{p.batch, p.frames, p.hw, p.cout};
  std::vector<TensorSpec> specs;
  specs.push_back({"x", {p.batch, p.frames, p.hw, p.cin}, dtype, Role::in, unit});
  specs.push_back({"w", {p.cout, kTaps, p.cin}, dtype, Role::in, weights});
  if (p.bias) specs.push_back({"bias", {p.cout}, dtype, Role::in, unit});
  if (p.residual) specs.push_back({"residual", output, dtype, Role::in, unit});
  specs.push_back({"y", output, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x = pointers.next();
  t.w = pointers.next();
  t.bias = pointers.next_if(p.bias);
  t.residual = pointers.next_if(p.residual);
  t.y = pointers.next();
  return t;
}

Cost Definition::cost(const Problem& p, DType dtype) {
  Cost cost;
  cost.flops = 2.0 * static_cast<double>(p.pixels()) * static_cast<double>(p.cout) * static_cast<double>(kTaps * p.cin);
  for (const TensorSpec& spec : tensors(p, dtype)) cost.bytes += static_cast<double>(spec.bytes());
  cost.pipe = dtype == DType::fp32 ? Pipe::fma : Pipe::tensor;
  return cost;
}

// As conv2d's: one rounding of y, fp32 sums of 3 cin products, a few units of epilogue.
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  constexpr double kEpilogueUnits = 32;
  const double sums = (std::ceil(static_cast<double>(kTaps * p.cin) / 16) + kEpilogueUnits) * 0x1p-23;
  const double both = unit_roundoff(dtype) + sums;
  return {both, both};
}

}  // namespace noisefloor::conv3d_temporal
