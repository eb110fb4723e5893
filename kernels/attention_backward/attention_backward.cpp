#include "kernels/attention_backward/attention_backward.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "kernels/core/cost.h"
#include "kernels/core/exact.h"
#include "kernels/core/fields.h"
#include "kernels/core/op.h"
#include "kernels/core/tensor.h"

namespace noisefloor::attention_backward {
namespace {

using attention::is_packed;
using attention::Part;
using attention::View;

void fields(Problem& p, FieldVisitor& visit) {
  visit.computes("the gradients of softmax(scale q k^T) v, of each image and head");
  visit_fields(p, visit);
}

void check(const Problem& p) {
  check_fields(p);
}

// Logits are about normal numbers, whatever the scale, o and lse about what such make them: the weights of a query
// sum to about 1.
void visit_tensors(const Problem& p, Tensors& t, TensorVisitor& visit) {
  const Extents queries{"batch", "seq_q"}, keys{"batch", "seq_kv"}, packed{"batch", "seq_q=seq_kv"};
  const double count = static_cast<double>(p.seq_kv), root = std::sqrt(static_cast<double>(p.dim));
  const double deviation = p.scale == 0 ? 1 : std::min(1.0, 1 / std::sqrt(p.scale * root));
  attention::visit_qkv(visit, t.q, t.k, t.v, p.layout, queries, keys, packed, deviation);
  visit.in({"o", "attention's out"}, t.o, queries.with({"heads", "dim"}), normal_fill(0, deviation / std::sqrt(count)));
  visit.in({"lse", "attention's lse, the natural log-sum-exp of the scaled logits"}, t.lse, {"batch", "heads", "seq_q"},
           normal_fill(std::log(count) + 0.5, 0.1));
  visit.in({"dout", "the gradient of o"}, t.dout, queries.with({"heads", "dim"}));

  const bool separate = !is_packed(p.layout);
  visit.when(separate, "layout=separate").out("dq", t.dq, queries.with({"heads", "dim"}));
  visit.when(separate, "layout=separate").out("dk", t.dk, keys.with({"heads", "dim"}));
  visit.when(separate, "layout=separate").out("dv", t.dv, keys.with({"heads", "dim"}));
  const TensorName dqkv{"dqkv", "in the place of dq, dk and dv"};
  visit.when(p.layout == Layout::packed_3hd, "layout=packed_3hd").out(dqkv, t.dq, packed.with({"3", "heads", "dim"}));
  visit.when(p.layout == Layout::packed_h3d, "layout=packed_h3d").out(dqkv, t.dq, packed.with({"heads", "3", "dim"}));
  visit.when(p.layout == Layout::packed_hd3, "layout=packed_hd3").out(dqkv, t.dq, packed.with({"heads", "dim", "3"}));
  if (separate) return;
  visit.same(t.dk, t.dq);
  visit.same(t.dv, t.dq);
}

// Five products: the logits anew, the weights' gradients, and those of queries, keys and values.
Cost cost(const Problem& p, DType dtype, double bytes) {
  const double products = static_cast<double>(p.batch * p.heads) * static_cast<double>(p.seq_q) *
                          static_cast<double>(p.seq_kv) * static_cast<double>(p.dim);
  return {10 * products, bytes, product_pipe(dtype)};
}

// As attention's, of sums over the longer sequence. A weight's gradient is rounded, too, and has longer tails: one that
// is most of an element's sum may be off by more of its size than many are together.
Tolerance tolerance(const Problem& p, DType dtype) {
  Shape shape = p.shape();
  shape.seq_kv = std::max(shape.seq_q, shape.seq_kv);
  Tolerance bounds = attention::error_bounds(dtype, shape);
  if (dtype != DType::fp32) bounds.max_error *= 2;
  return bounds;
}

// What an element of an output belongs to: `seq` is its query or key.
struct Place {
  Part part;
  std::int64_t outer, seq, head, d;
  bool same_row(const Place& other) const { return outer == other.outer && seq == other.seq && head == other.head; }
};

Place place_of(const Problem& p, std::string_view output, std::int64_t element) {
  const auto innermost = [&](std::int64_t extent) {
    const std::int64_t index = element % extent;
    element /= extent;
    return index;
  };
  Place at{output == "dk" ? Part::key : output == "dv" ? Part::value : Part::query, 0, 0, 0, 0};
  const auto part = [&] { at.part = static_cast<Part>(innermost(3)); };
  if (p.layout == Layout::packed_hd3) part();
  at.d = innermost(p.dim);
  if (p.layout == Layout::packed_h3d) part();
  at.head = innermost(p.heads);
  if (p.layout == Layout::packed_3hd) part();
  at.seq = innermost(at.part == Part::query ? p.seq_q : p.seq_kv);
  at.outer = element;
  return at;
}

// One row of dq, dk or dv at a time, in double: the weights that its sums have over the other sequence.
class Oracle {
 public:
  Oracle(const Shape& shape, DType dtype, const Tensors& t)
      : shape_(shape),
        q_{{dtype, t.q}, shape.q},
        k_{{dtype, t.k}, shape.k},
        v_{{dtype, t.v}, shape.v},
        o_{{dtype, t.o}, shape.out},
        dout_{{dtype, t.dout}, shape.out},
        lse_(t.lse) {}

  double operator()(const Place& at) {
    Held& held = held_[static_cast<int>(at.part)];
    if (held.weights.empty() || !held.place.same_row(at)) held = {at, weights_of(at)};
    const Side& other = at.part == Part::query ? k_ : at.part == Part::key ? q_ : dout_;
    double sum = 0;
    for (std::int64_t i = 0; i < std::ssize(held.weights); ++i)
      sum += held.weights[static_cast<std::size_t>(i)] *
             other.tensor[other.view.at(at.outer, 0, i, at.head) + at.d * other.view.element];
    return sum;
  }

 private:
  struct Side {
    HostTensor tensor;
    View view;
  };
  struct Held {
    Place place{};
    std::vector<double> weights;
  };

  std::vector<float> row(const Side& side, const Place& at, std::int64_t seq) const {
    std::vector<float> values(static_cast<std::size_t>(shape_.dim));
    load_head(side.tensor, side.view, side.view.at(at.outer, 0, seq, at.head), 0, shape_.dim, values.data());
    return values;
  }

  std::vector<double> weights_of(const Place& at) const {
    const bool of_query = at.part == Part::query;
    std::vector<double> weights(static_cast<std::size_t>(of_query ? shape_.seq_kv : shape_.seq_q));
    const double scale = static_cast<double>(shape_.scale);
    for (std::int64_t o = 0; o < std::ssize(weights); ++o) {
      const std::int64_t i = of_query ? at.seq : o, j = of_query ? o : at.seq;
      const double logit = scale * exact::dot(row(q_, at, i), row(k_, at, j));
      double weight =
          std::exp(logit - static_cast<double>(lse_[(at.outer * shape_.heads + at.head) * shape_.seq_q + i]));
      if (at.part != Part::value) {
        const std::vector<float> dout = row(dout_, at, i);
        weight *= scale * (exact::dot(dout, row(v_, at, j)) - exact::dot(dout, row(o_, at, i)));
      }
      weights[static_cast<std::size_t>(o)] = weight;
    }
    return weights;
  }

  Shape shape_;
  Side q_, k_, v_, o_, dout_;
  const float* lse_;
  Held held_[3];  // of each part the last row: a packed layout has them side by side
};

void reference(const Problem& p, DType dtype, const Tensors& t, std::string_view output,
               std::span<const std::int64_t> elements, std::span<double> values) {
  exact::each_element(elements, values, [&] {
    return [&, oracle = Oracle(p.shape(), dtype, t)](std::int64_t element) mutable {
      return oracle(place_of(p, output, element));
    };
  });
}

}  // namespace

constinit const Definition definition{
    "attention_backward", fields, check, visit_tensors, cost, tolerance, reference, variants};

Status check_pointers(const Problem& problem, const Tensors& tensors) {
  return definition.check_pointers(problem, tensors);
}

}  // namespace noisefloor::attention_backward
