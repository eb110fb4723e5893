#include "kernels/attention/strided.h"

#include <algorithm>
#include <cmath>

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

// The output is rounded once, by at most u = u(dtype) of itself. Tensor-core rungs round the probabilities into dtype
// too: an error of p_j v_j of at most u each, independent, so that the output's has a standard deviation of 0.42 u
// times the root of the sum of (p_j v_j)^2, which is the rms of the output; the largest of 10^8 such is 5.7
// deviations, 2.4 u. With few keys the probabilities are not small and a sum may cancel: 3 u covers both. In fp32
// remain the sums, over dim in a logit and over the keys: a tensor core truncates once per 16 products, chains of FMAs
// drift by less. The exponential takes a logit's absolute error, so that the logits' size counts: of normal numbers it
// is scale * sqrt(dim). Twice all that: in one of some thousand random problems a chain of 256 FMAs left logits of up
// to 3.5 times that size 2.6e-6 off, and an output 1.2 times beyond the bound; the exponential had no part in it.
Errors error_bounds(DType dtype, const Shape& shape) {
  constexpr double kExponentialUnits = 32;
  const double dim = static_cast<double>(shape.dim), keys = static_cast<double>(shape.seq_kv);
  const double size = std::max(1.0, static_cast<double>(shape.scale) * std::sqrt(dim));
  const double sums = 2 * ((std::ceil(dim / 16) + kExponentialUnits) * size + std::ceil(keys / 16)) * 0x1p-23;
  const double u = unit_roundoff(dtype);
  const double probabilities = dtype == DType::fp32 || shape.seq_kv == 1 ? 0 : 1;
  return {u * (1 + 3 * probabilities) + sums, u * (1 + 0.5 * probabilities) + sums};
}

}  // namespace noisefloor::attention
