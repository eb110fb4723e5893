#include "kernels/attention/attention.h"

#include <algorithm>
#include <string>

namespace noisefloor::attention {
namespace {

constexpr DType kDTypes[] = {DType::bf16, DType::fp16, DType::fp32};
constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

// The shapes of Q, K, V (one of them for a packed layout).
std::vector<std::int64_t> packed_extents(const Problem& p) {
  switch (p.layout) {
    case Layout::packed_3hd:
      return {p.batch, p.seq_q, 3, p.heads, p.dim};
    case Layout::packed_h3d:
      return {p.batch, p.seq_q, p.heads, 3, p.dim};
    default:
      return {p.batch, p.seq_q, p.heads, p.dim, 3};
  }
}

}  // namespace

std::span<const DType> Definition::dtypes() {
  return kDTypes;
}

void Definition::fields(Problem& p, FieldVisitor& visit) {
  visit.integer("batch", p.batch, 1, std::int64_t{1} << 20);
  visit.integer("heads", p.heads, 1, 1024);
  visit.integer("seq_q", p.seq_q, 1, std::int64_t{1} << 20);
  visit.integer("seq_kv", p.seq_kv, 1, std::int64_t{1} << 20);
  visit.integer("dim", p.dim, 1, 256);
  visit.enumeration<Layout>("layout", p.layout, kLayoutNames, Layout::separate);
  visit.real("scale", p.scale, 0, 1e3, 0.0);
  visit.flag("lse", p.lse, false);
}

void Definition::check(const Problem& p) {
  if (is_packed(p.layout) && p.seq_q != p.seq_kv)
    throw InvalidInput("problem: field 'seq_kv' is " + std::to_string(p.seq_kv) +
                       ", but a packed layout has as many keys as queries, seq_q=" + std::to_string(p.seq_q));
  const std::int64_t token = p.heads * p.dim * (is_packed(p.layout) ? 3 : 1);
  if (p.batch * std::max(p.seq_q, p.seq_kv) > kMaxElements / token)
    throw InvalidInput("problem: fields batch, heads, seq_q, seq_kv and dim make a tensor of more than 2^40 elements");
}

// With a scale of 1 / sqrt(dim) the logits of normal numbers are normal numbers.
std::vector<TensorSpec> Definition::tensors(const Problem& p, DType dtype) {
  std::vector<TensorSpec> specs;
  if (is_packed(p.layout)) {
    specs.push_back({"qkv", packed_extents(p), dtype, Role::in, {}});
  } else {
    specs.push_back({"q", {p.batch, p.seq_q, p.heads, p.dim}, dtype, Role::in, {}});
    specs.push_back({"k", {p.batch, p.seq_kv, p.heads, p.dim}, dtype, Role::in, {}});
    specs.push_back({"v", {p.batch, p.seq_kv, p.heads, p.dim}, dtype, Role::in, {}});
  }
  specs.push_back({"out", {p.batch, p.seq_q, p.heads, p.dim}, dtype, Role::out, {}});
  if (p.lse) specs.push_back({"lse", {p.batch, p.heads, p.seq_q}, DType::fp32, Role::out, {}});
  return specs;
}

Tensors Definition::bind(const Problem& p, PointerCursor pointers) {
  Tensors t;
  t.q = pointers.next();
  t.k = is_packed(p.layout) ? t.q : pointers.next();
  t.v = is_packed(p.layout) ? t.q : pointers.next();
  t.out = pointers.next();
  t.lse = static_cast<float*>(pointers.next_if(p.lse));
  return t;
}

Cost Definition::cost(const Problem& p, DType dtype) {
  Cost cost;
  cost.flops = 4.0 * static_cast<double>(p.batch * p.heads) * static_cast<double>(p.seq_q) *
               static_cast<double>(p.seq_kv) * static_cast<double>(p.dim);
  for (const TensorSpec& spec : tensors(p, dtype)) cost.bytes += static_cast<double>(spec.bytes());
  cost.pipe = dtype == DType::fp32 ? Pipe::fma : Pipe::tensor;
  return cost;
}

Tolerance Definition::tolerance(const Problem& p, DType dtype) {
  const Errors errors = error_bounds(dtype, p.shape());
  return {errors.max_error, errors.l2_error};
}

void Definition::reference(const Problem& p, DType, std::span<const HostTensor> inputs, std::size_t output,
                           std::span<const std::int64_t> elements, std::span<double> values) {
  const bool packed = is_packed(p.layout);
  const std::size_t out_index = packed ? 1 : 3;  // then lse
  attention::reference(p.shape(), inputs[0], inputs[packed ? 0 : 1], inputs[packed ? 0 : 2], output > out_index,
                       elements, values);
}

}  // namespace noisefloor::attention
