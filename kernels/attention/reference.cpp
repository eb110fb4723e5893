// The oracle: one row of the softmax at a time, every product and sum in double.
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention/strided.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"

namespace noisefloor::attention {
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

// Elements [first, first + count) of a head's vector. Floats hold bf16, fp16 and fp32 exactly.
void load(const HostTensor& tensor, const View& view, std::int64_t start, std::int64_t first, std::int64_t count,
          float* values) {
  if (view.element == 1) {
    load_floats(tensor.dtype, tensor.data, start + first, count, values);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(tensor[start + (first + i) * view.element]);
}

// Fills `weights` with exp(s - max) and returns the log-sum-exp; `sum` gets the weights' sum.
double softmax(const Shape& shape, const HostTensor& q, const HostTensor& k, const Row& row,
               std::vector<double>& weights, double& sum) {
  const auto dim = static_cast<std::size_t>(shape.dim);
  std::vector<float> query(dim), key(dim);
  load(q, shape.q, shape.q.at(row.outer, row.inner, row.query, row.head), 0, shape.dim, query.data());
  weights.resize(static_cast<std::size_t>(shape.seq_kv));
  for (std::int64_t j = 0; j < shape.seq_kv; ++j) {
    load(k, shape.k, shape.k.at(row.outer, row.inner, j, row.head), 0, shape.dim, key.data());
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
        load(v, shape.v, shape.v.at(row.outer, row.inner, j, row.head), d0, count, value.data());
        for (std::size_t d = 0; d < sums.size(); ++d)
          sums[d] += weights[static_cast<std::size_t>(j)] * static_cast<double>(value[d]);
      }
      for (std::size_t e = first; e < last; ++e)
        values[e] = sums[static_cast<std::size_t>(elements[e] % shape.dim - d0)] / sum;
    }
  });
}

}  // namespace noisefloor::attention
