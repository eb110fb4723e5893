// attention_backward on the host, in float: a task a head, whose queries one after the other add to the head's dk and
// dv. Every inner loop runs along a row, of a head's elements or of all keys.
//
// Bound: FMA throughput, of loops that load and store what they add to. Requires: nothing. Numerics: fp32, with
// vector_exp (1e-7 relative); sums over queries and keys in their order.
#include <algorithm>
#include <vector>

#include "kernels/attention_backward/attention_backward.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"
#include "kernels/core/vector_math.h"

namespace noisefloor::attention_backward {
namespace {

using attention::View;

// Of one head, [sequence, dim].
struct Rows {
  std::int64_t dim;
  std::vector<float> values;

  Rows(std::int64_t length, std::int64_t width) : dim(width), values(static_cast<std::size_t>(length * width)) {}
  float* operator[](std::int64_t i) { return values.data() + i * dim; }
  std::int64_t length() const { return std::ssize(values) / dim; }
};

// sums += weight * x.
void add(float weight, const float* __restrict x, std::int64_t count, float* __restrict sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += weight * x[i];
}
float dot(const float* x, const float* y, std::int64_t count) {
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += x[i] * y[i];
  return sum;
}

class Head {
 public:
  Head(const Shape& shape, DType dtype, const Tensors& t, std::int64_t outer, std::int64_t head)
      : shape_(shape), dtype_(dtype), t_(t), outer_(outer), head_(head) {}

  void run() const {
    Rows q = load(t_.q, shape_.q, shape_.seq_q), o = load(t_.o, shape_.out, shape_.seq_q);
    Rows dout = load(t_.dout, shape_.out, shape_.seq_q);
    Rows k = load(t_.k, shape_.k, shape_.seq_kv), v = load(t_.v, shape_.v, shape_.seq_kv);
    const std::int64_t dim = shape_.dim, keys = shape_.seq_kv;
    Rows dq(shape_.seq_q, dim), dk(keys, dim), dv(keys, dim), k_across = across(k), v_across = across(v);
    std::vector<float> p(static_cast<std::size_t>(keys)), s(p);
    for (std::int64_t i = 0; i < shape_.seq_q; ++i) {
      std::ranges::fill(p, 0.0f);
      std::ranges::fill(s, 0.0f);
      for (std::int64_t d = 0; d < dim; ++d) {
        add(q[i][d], k_across[d], keys, p.data());
        add(dout[i][d], v_across[d], keys, s.data());
      }
      const float lse = t_.lse[(outer_ * shape_.heads + head_) * shape_.seq_q + i], delta = dot(dout[i], o[i], dim);
      for (std::size_t j = 0; j < p.size(); ++j) {
        p[j] = vector_exp(shape_.scale * p[j] - lse);
        s[j] = shape_.scale * p[j] * (s[j] - delta);
      }
      for (std::int64_t j = 0; j < keys; ++j) {
        const auto at = static_cast<std::size_t>(j);
        add(s[at], k[j], dim, dq[i]);
        add(s[at], q[i], dim, dk[j]);
        add(p[at], dout[i], dim, dv[j]);
      }
    }
    store(dq, t_.dq, shape_.q);
    store(dk, t_.dk, shape_.k);
    store(dv, t_.dv, shape_.v);
  }

 private:
  Rows load(const void* data, const View& view, std::int64_t length) const {
    Rows rows(length, shape_.dim);
    for (std::int64_t i = 0; i < length; ++i)
      attention::load_head({dtype_, data}, view, view.at(outer_, 0, i, head_), 0, shape_.dim, rows[i]);
    return rows;
  }
  void store(Rows& rows, void* data, const View& view) const {
    for (std::int64_t i = 0; i < rows.length(); ++i)
      for (std::int64_t d = 0; d < shape_.dim; ++d)
        store_element(dtype_, data, view.at(outer_, 0, i, head_) + d * view.element, static_cast<double>(rows[i][d]));
  }
  static Rows across(Rows& rows) {
    Rows turned(rows.dim, rows.length());
    for (std::int64_t i = 0; i < rows.length(); ++i)
      for (std::int64_t d = 0; d < rows.dim; ++d) turned[d][i] = rows[i][d];
    return turned;
  }

  const Shape& shape_;
  DType dtype_;
  const Tensors& t_;
  std::int64_t outer_, head_;
};

}  // namespace

Status launch_host(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&, const LaunchContext&) {
  const Shape shape = problem.shape();
  parallel_for(shape.outer * shape.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) Head(shape, dtype, tensors, i / shape.heads, i % shape.heads).run();
  });
  return success();
}

}  // namespace noisefloor::attention_backward
