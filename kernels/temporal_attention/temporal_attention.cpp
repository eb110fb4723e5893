#include "kernels/temporal_attention/temporal_attention.h"

#include "kernels/temporal_attention/launchers.h"

namespace noisefloor::temporal_attention {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

// The shape of Q, K, V together for a packed layout.
std::vector<std::int64_t> packed_extents(const Problem& p) {
  switch (p.layout) {
    case Layout::packed_3hd:
      return {p.batch, p.frames, p.hw, 3, p.heads, p.dim};
    case Layout::packed_h3d:
      return {p.batch, p.frames, p.hw, p.heads, 3, p.dim};
    default:
      return {p.batch, p.frames, p.hw, p.heads, p.dim, 3};
  }
}

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  visit.integer("batch", p.batch, 1, std::int64_t{1} << 20);
  visit.integer("frames", p.frames, 1, kMaxFrames);
  visit.integer("hw", p.hw, 1, std::int64_t{1} << 24);
  visit.integer("heads", p.heads, 1, 1024);
  visit.integer("dim", p.dim, 1, 256);
  visit.enumeration<Layout>("layout", p.layout, attention::kLayoutNames, Layout::separate);
  visit.real("scale", p.scale, 0, 1e3, 0.0);
}

void Definition::check(const Problem& p) {
  const std::int64_t token = p.heads * p.dim * (is_packed(p.layout) ? 3 : 1);
  if (p.batch * p.frames > kMaxElements / token / p.hw)
    throw InvalidInput("problem: fields batch, frames, hw, heads and dim make a tensor of more than 2^40 elements");
}

std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  const std::vector<std::int64_t> extents{p.batch, p.frames, p.hw, p.heads, p.dim};
  std::vector<TensorSpec> specs;
  if (is_packed(p.layout)) {
    specs.push_back({"qkv", packed_extents(p), dtype, Role::in, {}});
  } else {
    specs.push_back({"q", extents, dtype, Role::in, {}});
    specs.push_back({"k", extents, dtype, Role::in, {}});
    specs.push_back({"v", extents, dtype, Role::in, {}});
  }
  specs.push_back({"out", extents, dtype, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.q = pointers.next();
  t.k = is_packed(p.layout) ? t.q : pointers.next();
  t.v = is_packed(p.layout) ? t.q : pointers.next();
  t.out = pointers.next();
  return t;
}

Cost Definition::cost(const Problem& p, DType dtype) {
  Cost cost;
  cost.flops = 4.0 * static_cast<double>(p.batch * p.hw * p.heads) * static_cast<double>(p.frames * p.frames * p.dim);
  for (const TensorSpec& spec : tensors(p, dtype)) cost.bytes += static_cast<double>(spec.bytes());
  cost.pipe = dtype == DType::fp32 ? Pipe::fma : Pipe::tensor;
  return cost;
}

Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  const attention::Errors errors = attention::error_bounds(dtype, p.shape());
  return {errors.max_error, errors.l2_error};
}

void Definition::reference(const Problem& p, DType, std::span<const HostTensor> inputs, std::size_t,
                           std::span<const std::int64_t> elements, std::span<double> values) {
  const bool packed = is_packed(p.layout);
  attention::reference(p.shape(), inputs[0], inputs[packed ? 0 : 1], inputs[packed ? 0 : 2], false, elements, values);
}

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  attention::compute_on_host(p.shape(), dtype, t.q, t.k, t.v, t.out, nullptr);
  return success();
}

}  // namespace noisefloor::temporal_attention
