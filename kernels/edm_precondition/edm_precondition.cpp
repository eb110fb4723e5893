#include "kernels/edm_precondition/edm_precondition.h"

#include <string>

#include "kernels/sampler_step/schedule.h"

namespace noisefloor::edm_precondition {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr const char* kSides[] = {"input", "output"};
constexpr std::int64_t kMaxTotal = std::int64_t{1} << 33;

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  visit.enumeration("side", p.side, kSides);
  visit.integer("batch", p.batch, 1, 1 << 20);
  visit.integer("elements", p.elements, 1, std::int64_t{1} << 31);
  visit.real("sigma_data", p.sigma_data, 1e-3, 1e3, 0.5);
}

void Definition::check(const Problem& p) {
  if (p.total() > kMaxTotal)
    throw InvalidInput("problem: fields batch and elements make " + std::to_string(p.total()) +
                       " elements, more than 2^33");
}

std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const std::vector<std::int64_t> images{p.batch, p.elements};
  const Fill unit{Fill::Kind::normal, 0, 1};
  std::vector<TensorSpec> specs{{"x", images, dtype, Role::in, unit}};
  if (p.side == Side::output) specs.push_back({"f", images, dtype, Role::in, unit});
  specs.push_back({"sigma", {p.batch}, DType::fp32, Role::in, {Fill::Kind::op, 0, 0}});
  specs.push_back({p.side == Side::input ? "y" : "d", images, dtype, Role::out, {}});
  if (p.side == Side::input) specs.push_back({"c_noise", {p.batch}, DType::fp32, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x = pointers.next();
  t.f = pointers.next_if(p.side == Side::output);
  t.sigma = static_cast<const float*>(pointers.next());
  t.y = pointers.next();
  t.c_noise = static_cast<float*>(pointers.next_if(p.side == Side::input));
  return t;
}

// A product, or a product and a multiply-add.
Cost Definition::cost(const Problem& p, DType dtype) {
  double bytes = 0;
  for (const TensorSpec& spec : tensors(p, dtype)) bytes += static_cast<double>(spec.bytes());
  return {(p.side == Side::input ? 1 : 3) * static_cast<double>(p.total()), bytes, Pipe::fma};
}

// One rounding, u, after some 8 fp32 operations, the coefficients' included, on terms that may cancel.
Tolerance Definition::tolerance(const Problem&, DType dtype) {
  const double allowed = unit_roundoff(dtype) + 32 * unit_roundoff(DType::fp32);
  return {allowed, allowed};
}

void Definition::fill(const Problem& p, DType, std::size_t, void* data) {
  const auto sigmas = sampler_step::karras_sigmas(sampler_step::kTrainingSteps);
  auto* out = static_cast<float*>(data);
  for (std::int64_t i = 0; i < p.batch; ++i)
    out[i] = static_cast<float>(
        sigmas[static_cast<std::size_t>((2 * i + 1) * sampler_step::kTrainingSteps / (2 * p.batch))]);
}

}  // namespace noisefloor::edm_precondition
