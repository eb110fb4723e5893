#include "kernels/groupnorm/groupnorm.h"

#include <cmath>
#include <string>

namespace noisefloor::groupnorm {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr const char* kFusions[] = {"none", "silu", "silu+ss"};
constexpr const char* kSlabStats[] = {"none", "given", "quarters"};

// A mean three standard deviations off zero: E[x^2] - E[x]^2 then loses bits that a shifted sum keeps.
constexpr double kFillMean = 3;
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  visit.integer("n", p.n, 1, 32767);
  visit.integer("hw", p.hw, 1, std::int64_t{1} << 30);
  visit.integer("channels", p.channels, 1, 65536);
  visit.integer("groups", p.groups, 1, 65536);
  visit.enumeration("fusion", p.fusion, kFusions, std::optional<Fusion>(Fusion::none));
  visit.real("eps", p.eps, 1e-12, 1.0, 1e-5);
  visit.flag("stats", p.stats, false);
  visit.enumeration("slab_stats", p.slab_stats, kSlabStats, std::optional<SlabStats>(SlabStats::none));
  visit.flag("packed", p.packed, false);
}

void Definition::check(const Problem& p) {
  if (p.channels % p.groups != 0)
    throw InvalidInput("groups=" + std::to_string(p.groups) +
                       " does not divide channels=" + std::to_string(p.channels));
  if (p.packed && !p.scale_shift())
    throw InvalidInput("packed=1 needs fusion=silu+ss: no other fusion has a scale and a shift to pack");
  if (p.given() && p.given_slabs() * p.channels_per_group() > INT32_MAX)
    throw InvalidInput("hw and channels make more than 2^31 given statistics per image and group");
  if (p.hw % p.quarters() != 0)
    throw InvalidInput("hw=" + std::to_string(p.hw) + " is no multiple of 4, which slab_stats=quarters needs");
  if (p.hw > kMaxElements / (p.n * p.channels))
    throw InvalidInput("n*hw*channels is more than 2^40 elements; lower n, hw or channels");
}

std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const std::vector<std::int64_t> activations{p.n, p.hw, p.channels};
  std::vector<TensorSpec> specs{
      {"x", activations, dtype, Role::in, {Fill::Kind::normal, kFillMean, 1}},
      {"gamma", {p.channels}, dtype, Role::in, {Fill::Kind::normal, 1, 0.25}},
      {"beta", {p.channels}, dtype, Role::in, {Fill::Kind::normal, 0, 0.25}},
  };
  if (p.packed) {
    specs.push_back({"scale_shift", {p.n, 2 * p.channels}, dtype, Role::in, {Fill::Kind::normal, 0, 0.25}});
  } else if (p.scale_shift()) {
    specs.push_back({"scale", {p.n, p.channels}, dtype, Role::in, {Fill::Kind::normal, 0, 0.25}});
    specs.push_back({"shift", {p.n, p.channels}, dtype, Role::in, {Fill::Kind::normal, 0, 0.25}});
  }
  if (p.given()) {  // positive M2: eight standard deviations off zero
    const std::vector<std::int64_t> slabs{p.n, p.given_slabs(), p.channels};
    specs.push_back({"slab_mean", slabs, DType::fp32, Role::in, {Fill::Kind::normal, kFillMean, 0.125}});
    specs.push_back({"slab_m2", slabs, DType::fp32, Role::in, {Fill::Kind::normal, kGivenSlabRows, 8}});
  }
  specs.push_back({"y", activations, dtype, Role::out, {}});
  if (p.stats) {
    specs.push_back({"mean", {p.n, p.groups}, DType::fp32, Role::out, {}});
    specs.push_back({"rstd", {p.n, p.groups}, DType::fp32, Role::out, {}});
  }
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.x = pointers.next();
  t.gamma = pointers.next();
  t.beta = pointers.next();
  t.scale = pointers.next_if(p.scale_shift());
  t.shift = pointers.next_if(p.scale_shift() && !p.packed);
  t.slab_mean = static_cast<const float*>(pointers.next_if(p.given()));
  t.slab_m2 = static_cast<const float*>(pointers.next_if(p.given()));
  t.y = pointers.next();
  t.mean = static_cast<float*>(pointers.next_if(p.stats));
  t.rstd = static_cast<float*>(pointers.next_if(p.stats));
  return t;
}

// Per element: the mean 1 (add), the variance 3 (subtract, multiply-add), the affine map 2 (multiply-add, mean, rstd,
// gamma, beta, scale and shift folded into one pair of coefficients per image and channel), SiLU 4 (exponential, add,
// divide, multiply). Per image and channel: 3 for the pair, 3 more for scale and shift. Given statistics leave out mean
// and variance; merging them is not counted (1/64 of that).
Cost Definition::cost(const Problem& p, DType dtype) {
  const double per_element = (p.given() ? 2 : 6) + (p.fusion == Fusion::none ? 0 : 4);
  const double per_channel = 3 + (p.scale_shift() ? 3 : 0);
  double bytes = 0;
  for (const TensorSpec& spec : tensors(p, dtype)) bytes += static_cast<double>(spec.bytes());
  return {per_element * static_cast<double>(p.elements()) + per_channel * static_cast<double>(p.n * p.channels), bytes,
          Pipe::fma};
}

// The output's rounding, u; and fp32 arithmetic, whose error the normalisation multiplies by |mean| / stddev: a sum of
// L terms is off by about sqrt(L) roundings, the affine map and SiLU by some 16. From 32 elements on, the stddev of a
// group of normal numbers is near 1 (above 1/2); in smaller groups it may come out as small as eps lets it, sqrt(eps).
Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  const double u = unit_roundoff(dtype);
  const double u32 = unit_roundoff(DType::fp32);
  const double size = static_cast<double>(p.group_size());
  const double condition = size >= 32 ? kFillMean / 0.5 : kFillMean / std::sqrt(p.eps);
  const double arithmetic = u32 * (16 + std::sqrt(size)) * condition;
  return {u + arithmetic, u + arithmetic};
}

}  // namespace noisefloor::groupnorm
