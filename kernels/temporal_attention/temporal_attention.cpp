#include "kernels/temporal_attention/temporal_attention.h"

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/op.h"
#include "kernels/core/tensor.h"

namespace noisefloor::temporal_attention {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("softmax(scale q k^T) v along the frames of a video, of each pixel and head");
  visit.integer("batch", "videos", p.batch, 1, std::int64_t{1} << 20);
  visit.integer("frames", "frames of a video, its queries and keys", p.frames, 1, kMaxFrames);
  visit.integer("hw", "pixels of a frame, height * width", p.hw, 1, std::int64_t{1} << 24);
  visit.integer("heads", "heads; each has its own attention", p.heads, 1, 1024);
  visit.integer("dim", "channels of a head", p.dim, 1, 256);
  visit.enumeration("layout",
                    "q, k and v separate, or one tensor qkv; the name gives its last axes: 3hd is [3, heads, dim]",
                    p.layout, attention::kLayoutNames, Layout::separate);
  visit.real("scale", "factor of the logits; 0: 1 / sqrt(dim)", p.scale, 0, 1e3, 0.0);
}

void check(const Problem& p) {
  const std::int64_t token = p.heads * p.dim * (is_packed(p.layout) ? 3 : 1);
  if (p.batch * p.frames > kMaxElements / token / p.hw)
    refuse("fields batch, frames, hw, heads and dim make a tensor of more than 2^40 elements");
}

void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents tokens{"batch", "frames", "hw"};
  attention::visit_qkv(visit, t.q, t.k, t.v, p.layout, tokens, tokens, tokens);
  visit.out("out", t.out, tokens.with({"heads", "dim"}));
}

// The softmax is not counted. Over one frame it is 1, and the output is V.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double products =
      static_cast<double>(p.batch * p.hw * p.heads) * static_cast<double>(p.frames * p.frames * p.dim);
  if (p.frames == 1) {
    const double v_and_out = 2 * static_cast<double>(p.batch * p.hw) * static_cast<double>(p.heads * p.dim);
    return {2 * products, v_and_out * static_cast<double>(size_of(dtype)), product_pipe(dtype), Shortcut::one_key};
  }
  return {4 * products, bytes, product_pipe(dtype)};
}

Tolerance tolerance(const Problem& p, DType dtype) {
  return attention::error_bounds(dtype, p.shape());
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view,
               std::span<const std::int64_t> elements, std::span<double> values) {
  attention::softmax_reference(p.shape(), {dtype, t.q}, {dtype, t.k}, {dtype, t.v}, false, elements, values);
}

}  // namespace

constinit const Definition definition{
    "temporal_attention", fields, check, visit_tensors, cost, tolerance, reference, variants};

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  attention::compute_on_host(p.shape(), dtype, t.q, t.k, t.v, t.out, nullptr);
  return success();
}

Status check_pointers(const Tensors& tensors) {
  return definition.check_pointers({}, tensors);  // of every layout all four must be there
}

}  // namespace noisefloor::temporal_attention
