#include "kernels/attention/strided.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"

namespace noisefloor::attention {

Shape make_shape(Layout layout, std::int64_t outer, std::int64_t inner, std::int64_t heads, std::int64_t seq_q,
                 std::int64_t seq_kv, std::int64_t dim, double scale) {
  const double used = scale == 0 ? 1 / std::sqrt(static_cast<double>(dim)) : scale;
  return {outer,
          inner,
          heads,
          seq_q,
          seq_kv,
          dim,
          static_cast<float>(used),
          view_of(layout, Part::query, inner, seq_q, heads, dim),
          view_of(layout, Part::key, inner, seq_kv, heads, dim),
          view_of(layout, Part::value, inner, seq_kv, heads, dim),
          view_of(Layout::separate, Part::query, inner, seq_q, heads, dim)};
}

// The output is rounded once, by at most u = u(dtype) of itself. Tensor-core variants round the probabilities into
// dtype too: an error of p_j v_j of at most u each, independent, so that the output's has a standard deviation of 0.42
// u times the root of the sum of (p_j v_j)^2, which is the rms of the output; the largest of 10^8 such is 5.7
// deviations, 2.4 u. With few keys the probabilities are not small and a sum may cancel: 3 u covers both. In fp32
// remain the sums, over dim in a logit and over the keys: a tensor core truncates once per 16 products, chains of FMAs
// drift by less. The exponential takes a logit's absolute error, so that the logits' size counts: of normal numbers it
// is scale * sqrt(dim). Twice all that: in one of some thousand random problems a chain of 256 FMAs left logits of up
// to 3.5 times that size 2.6e-6 off, and an output 1.2 times beyond the bound; the exponential had no part in it.
Tolerance error_bounds(DType dtype, const Shape& shape) {
  constexpr double kExponentialUnits = 32;
  const double dim = static_cast<double>(shape.dim), keys = static_cast<double>(shape.seq_kv);
  const double size = std::max(1.0, static_cast<double>(shape.scale) * std::sqrt(dim));
  const double sums = 2 * ((std::ceil(dim / 16) + kExponentialUnits) * size + std::ceil(keys / 16)) * 0x1p-23;
  const double u = unit_roundoff(dtype);
  const double probabilities = dtype == DType::fp32 || shape.seq_kv == 1 ? 0 : 1;
  return {u * (1 + 3 * probabilities) + sums, u * (1 + 0.5 * probabilities) + sums};
}

void load_head(const HostTensor& tensor, const View& view, std::int64_t start, std::int64_t first, std::int64_t count,
               float* values) {
  if (view.element == 1) {
    load_floats(tensor.dtype, tensor.data, start + first, count, values);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(tensor[start + (first + i) * view.element]);
}

namespace {

// One query of one head of one sequence.
struct Row {
  std::int64_t outer, inner, head, query;
};

Row row_of_output(const Shape& shape, std::int64_t row) {
  const std::int64_t head = row % shape.heads;
  const std::int64_t inner = row / shape.heads % shape.inner;
  const std::int64_t query = row / shape.heads / shape.inner % shape.seq_q;
  return {row / shape.heads / shape.inner / shape.seq_q, inner, head, query};
}

Row row_of_lse(const Shape& shape, std::int64_t row) {
  return {row / shape.seq_q / shape.heads, 0, row / shape.seq_q % shape.heads, row % shape.seq_q};
}

// Fills `weights` with exp(s - max) and returns the log-sum-exp; `sum` gets the weights' sum.
double softmax(const Shape& shape, const HostTensor& q, const HostTensor& k, const Row& row,
               std::vector<double>& weights, double& sum) {
  const auto dim = static_cast<std::size_t>(shape.dim);
  std::vector<float> query(dim), key(dim);
  load_head(q, shape.q, shape.q.at(row.outer, row.inner, row.query, row.head), 0, shape.dim, query.data());
  weights.resize(static_cast<std::size_t>(shape.seq_kv));
  for (std::int64_t j = 0; j < shape.seq_kv; ++j) {
    load_head(k, shape.k, shape.k.at(row.outer, row.inner, j, row.head), 0, shape.dim, key.data());
    double dot = 0;
    for (std::size_t d = 0; d < dim; ++d) dot += static_cast<double>(query[d]) * static_cast<double>(key[d]);
    weights[static_cast<std::size_t>(j)] = static_cast<double>(shape.scale) * dot;
  }
  const double highest = *std::max_element(weights.begin(), weights.end());
  sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - highest);
  return highest + std::log(sum);
}

}  // namespace

// The oracle: one row of the softmax at a time, every product and sum in double.
void softmax_reference(const Shape& shape, const HostTensor& q, const HostTensor& k, const HostTensor& v, bool lse,
                       std::span<const std::int64_t> elements, std::span<double> values) {
  // Runs of wanted elements that lie in one row share its softmax.
  const std::int64_t width = lse ? 1 : shape.dim;
  std::vector<std::size_t> starts;
  for (std::size_t e = 0; e < elements.size(); ++e)
    if (e == 0 || elements[e] / width != elements[e - 1] / width) starts.push_back(e);
  starts.push_back(elements.size());

  parallel_for(static_cast<std::int64_t>(starts.size()) - 1, 1, [&](std::int64_t begin, std::int64_t end) {
    std::vector<double> weights;
    std::vector<float> value;
    std::vector<double> sums;
    for (auto run = static_cast<std::size_t>(begin); run < static_cast<std::size_t>(end); ++run) {
      const std::size_t first = starts[run], last = starts[run + 1];
      const std::int64_t index = elements[first] / width;
      const Row row = lse ? row_of_lse(shape, index) : row_of_output(shape, index);
      double sum = 0;
      const double log_sum = softmax(shape, q, k, row, weights, sum);
      if (lse) {
        values[first] = log_sum;
        continue;
      }
      const auto [low, high] = std::minmax_element(elements.begin() + static_cast<std::ptrdiff_t>(first),
                                                   elements.begin() + static_cast<std::ptrdiff_t>(last));
      const std::int64_t d0 = *low % shape.dim, count = *high - *low + 1;
      sums.assign(static_cast<std::size_t>(count), 0);
      value.resize(static_cast<std::size_t>(count));
      for (std::int64_t j = 0; j < shape.seq_kv; ++j) {
        load_head(v, shape.v, shape.v.at(row.outer, row.inner, j, row.head), d0, count, value.data());
        for (std::size_t d = 0; d < sums.size(); ++d)
          sums[d] += weights[static_cast<std::size_t>(j)] * static_cast<double>(value[d]);
      }
      for (std::size_t e = first; e < last; ++e)
        values[e] = sums[static_cast<std::size_t>(elements[e] % shape.dim - d0)] / sum;
    }
  });
}

void visit_qkv(TensorVisitor& visit, const void*& q, const void*& k, const void*& v, Layout layout,
               const Extents& queries, const Extents& keys, const Extents& packed, double deviation) {
  const Fill fill = normal_fill(0, deviation);
  const bool separate = !is_packed(layout);
  visit.when(separate, "layout=separate").in("q", q, queries.with({"heads", "dim"}), fill);
  visit.when(separate, "layout=separate").in("k", k, keys.with({"heads", "dim"}), fill);
  visit.when(separate, "layout=separate").in("v", v, keys.with({"heads", "dim"}), fill);
  const TensorName qkv{"qkv", "in the place of q, k and v"};
  visit.when(layout == Layout::packed_3hd, "layout=packed_3hd").in(qkv, q, packed.with({"3", "heads", "dim"}), fill);
  visit.when(layout == Layout::packed_h3d, "layout=packed_h3d").in(qkv, q, packed.with({"heads", "3", "dim"}), fill);
  visit.when(layout == Layout::packed_hd3, "layout=packed_hd3").in(qkv, q, packed.with({"heads", "dim", "3"}), fill);
  if (separate) return;
  visit.same(k, q);
  visit.same(v, q);
}

}  // namespace noisefloor::attention
