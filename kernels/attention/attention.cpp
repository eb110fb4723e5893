#include "kernels/attention/attention.h"

#include <algorithm>
#include <string>

#include "kernels/core/cost.h"
#include "kernels/core/fields.h"
#include "kernels/core/op.h"
#include "kernels/core/tensor.h"

namespace noisefloor::attention {
namespace {

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("softmax(scale q k^T) v, of each image and head");
  visit_fields(p, visit);
  visit.flag("lse", "also write the log-sum-exp of each row of logits", p.lse, false);
}

void check(const Problem& p) {
  check_fields(p);
}

// With a scale of 1 / sqrt(dim) the logits of normal numbers are normal numbers.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  visit_qkv(visit, t.q, t.k, t.v, p.layout, {"batch", "seq_q"}, {"batch", "seq_kv"}, {"batch", "seq_q=seq_kv"});
  visit.out("out", t.out, {"batch", "seq_q", "heads", "dim"});
  visit.when(p.lse, "lse").out({"lse", "natural log-sum-exp of the scaled logits"}, t.lse, {"batch", "heads", "seq_q"});
}

// The softmax is not counted. Over one key it is 1: the output is V, and depends on Q and K no more. lse still does.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double products = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.seq_q) *
                          static_cast<double>(p.seq_kv) * static_cast<double>(p.dim);
  if (p.seq_kv == 1 && !p.lse) {
    const double v_and_out = static_cast<double>(p.batch * p.heads * p.dim) * static_cast<double>(1 + p.seq_q);
    return {2 * products, v_and_out * static_cast<double>(size_of(dtype)), product_pipe(dtype), Shortcut::one_key};
  }
  return {4 * products, bytes, product_pipe(dtype)};
}

Tolerance tolerance(const Problem& p, DType dtype) {
  return error_bounds(dtype, p.shape());
}

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  softmax_reference(p.shape(), {dtype, t.q}, {dtype, t.k}, {dtype, t.v}, output == "lse", elements, values);
}

}  // namespace

constinit const Definition definition{"attention", fields, check, visit_tensors, cost, tolerance, reference, variants};

void visit_fields(Fields& p, FieldVisitor& visit) {
  visit.integer("batch", "images", p.batch, 1, std::int64_t{1} << 20);
  visit.integer("heads", "heads; each has its own attention", p.heads, 1, 1024);
  visit.integer("seq_q", "queries of an image", p.seq_q, 1, std::int64_t{1} << 20);
  visit.integer("seq_kv", "keys and values of an image; in a packed layout as many as queries", p.seq_kv, 1,
                std::int64_t{1} << 20);
  visit.integer("dim", "channels of a head", p.dim, 1, 512);
  visit.enumeration("layout",
                    "q, k and v separate, or one tensor qkv; the name gives its last axes: 3hd is [3, heads, dim]",
                    p.layout, kLayoutNames, Layout::separate);
  visit.real("scale", "factor of the logits; 0: 1 / sqrt(dim)", p.scale, 0, 1e3, 0.0);
}

void check_fields(const Fields& p) {
  if (is_packed(p.layout) && p.seq_q != p.seq_kv)
    refuse("field 'seq_kv' is " + std::to_string(p.seq_kv) +
           ", but a packed layout has as many keys as queries, seq_q=" + std::to_string(p.seq_q));
  constexpr std::int64_t kMaxElements = std::int64_t{1} << 40;
  const std::int64_t token = p.heads * p.dim * (is_packed(p.layout) ? 3 : 1);
  if (p.batch * std::max(p.seq_q, p.seq_kv) > kMaxElements / token)
    refuse("fields batch, heads, seq_q, seq_kv and dim make a tensor of more than 2^40 elements");
}

Status check_pointers(const Problem& problem, const Tensors& tensors) {
  return definition.check_pointers(problem, tensors);
}

}  // namespace noisefloor::attention
