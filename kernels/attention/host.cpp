// Attention on the host: float, all cores, loops that the compiler vectorises.
//
// The online softmax of Milakov and Gimelshein (arXiv:1805.02867), blocked: a task takes kRows queries of one head past
// the keys, kKeys at a time. A block of keys is widened to float and transposed, so that the products of a query with
// all of them run along the keys in vector registers, as the exponentials do; the products with values run along the
// head. All buffers are on the task's stack: kKeys * 256 floats for keys and values each, 64 KiB, and less for the
// rest; twice that for heads above 256.
//
// Bound: FMA throughput at 1024 keys of 64. Requires: nothing. Numerics: fp32, with vector_exp (1e-7 relative).
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention/attention.h"
#include "kernels/attention/strided.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"
#include "kernels/core/vector_math.h"
#include "kernels/product/host_product.h"

namespace noisefloor::attention {
namespace {

using host_product::round_up;
using host_product::Vector;

constexpr std::int64_t kWide = host_product::kMicroN;  // columns of the micro-kernel: two vectors
constexpr std::int64_t kHigh = 4;                      // its rows: 8 vectors of sums cover an FMA's latency
constexpr std::int64_t kRows = 32;
constexpr std::int64_t kKeys = 64;

// A task's buffers and its running sums. Rows, keys and elements past the problem's are zeros.
template <std::int64_t kMaxDim>
struct Task {
  static_assert(kRows % kHigh == 0 && kKeys % kWide == 0 && kMaxDim % kWide == 0, "whole micro-kernels");
  alignas(64) float query[kRows][kMaxDim];  // scaled
  alignas(64) float keys[kMaxDim][kKeys];   // transposed
  alignas(64) float values[kKeys][kMaxDim];
  alignas(64) float logits[kRows][kKeys];
  alignas(64) float out[kRows][kMaxDim];
  float highest[kRows], sum[kRows];
};

// c[kHigh, kWide] (+)= a[kHigh, depth] b[depth, kWide]; rows are kStride* floats apart, b and c aligned to vectors.
template <std::int64_t kStrideA, std::int64_t kStrideB, std::int64_t kStrideC, bool kAdd>
inline void multiply_tile(const float* a, const float* b, float* c, std::int64_t depth) {
  Vector sums[kHigh][2];
#pragma GCC unroll 4
  for (std::int64_t r = 0; r < kHigh; ++r) {
    auto* row = reinterpret_cast<const Vector*>(c + r * kStrideC);
    sums[r][0] = kAdd ? row[0] : Vector{};
    sums[r][1] = kAdd ? row[1] : Vector{};
  }
  for (std::int64_t i = 0; i < depth; ++i) {
    auto* line = reinterpret_cast<const Vector*>(b + i * kStrideB);
    const Vector left = line[0], right = line[1];
#pragma GCC unroll 4
    for (std::int64_t r = 0; r < kHigh; ++r) {
      sums[r][0] += a[r * kStrideA + i] * left;
      sums[r][1] += a[r * kStrideA + i] * right;
    }
  }
#pragma GCC unroll 4
  for (std::int64_t r = 0; r < kHigh; ++r) {
    auto* row = reinterpret_cast<Vector*>(c + r * kStrideC);
    row[0] = sums[r][0];
    row[1] = sums[r][1];
  }
}

// logits = query * keys.
template <std::int64_t kMaxDim>
void multiply_keys(Task<kMaxDim>& task, std::int64_t rows, std::int64_t keys, std::int64_t dim) {
  for (std::int64_t j = 0; j < keys; j += kWide)
    for (std::int64_t r = 0; r < rows; r += kHigh)
      multiply_tile<kMaxDim, kKeys, kKeys, false>(task.query[r], task.keys[0] + j, task.logits[r] + j, dim);
}

// Turns the logits of `keys` keys into weights exp(s - highest), and rescales what was summed under a lower maximum.
template <std::int64_t kMaxDim>
void take_softmax(Task<kMaxDim>& task, std::int64_t rows, std::int64_t keys, std::int64_t dim) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float* logits = task.logits[r];
    float highest = task.highest[r];
    for (std::int64_t j = 0; j < keys; ++j) highest = std::max(highest, logits[j]);
    const float rescale = vector_exp(task.highest[r] - highest);
    float sum = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      logits[j] = vector_exp(logits[j] - highest);
      sum += logits[j];
    }
    task.highest[r] = highest;
    task.sum[r] = task.sum[r] * rescale + sum;
    if (rescale != 1)
      for (std::int64_t d = 0; d < dim; ++d) task.out[r][d] *= rescale;
  }
}

// out += weights * values.
template <std::int64_t kMaxDim>
void add_values(Task<kMaxDim>& task, std::int64_t rows, std::int64_t keys, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; d += kWide)
    for (std::int64_t r = 0; r < rows; r += kHigh)
      multiply_tile<kKeys, kMaxDim, kMaxDim, true>(task.logits[r], task.values[0] + d, task.out[r] + d, keys);
}

// Widens keys [key, key + keys) of one head, transposed, and their values.
template <std::int64_t kMaxDim>
void load_keys(Task<kMaxDim>& task, const Shape& shape, DType dtype, const void* k, const void* v, std::int64_t outer,
               std::int64_t inner, std::int64_t head, std::int64_t key, std::int64_t keys) {
  for (std::int64_t j = 0; j < keys; ++j) {
    float row[kMaxDim];
    load_head({dtype, k}, shape.k, shape.k.at(outer, inner, key + j, head), 0, shape.dim, row);
    for (std::int64_t d = 0; d < shape.dim; ++d) task.keys[d][j] = row[d];
    load_head({dtype, v}, shape.v, shape.v.at(outer, inner, key + j, head), 0, shape.dim, task.values[j]);
    std::fill(task.values[j] + shape.dim, task.values[j] + round_up(shape.dim, kWide), 0.0f);
  }
  for (std::int64_t d = 0; d < shape.dim; ++d)
    std::fill(task.keys[d] + keys, task.keys[d] + round_up(keys, kWide), 0.0f);
}

template <std::int64_t kMaxDim>
void compute(const Shape& shape, DType dtype, const void* q, const void* k, const void* v, void* out, float* lse) {
  const std::int64_t blocks = (shape.seq_q + kRows - 1) / kRows;
  // Neighbouring heads of a token share cache lines; short sequences go several to a task's turn.
  const std::int64_t grain = std::max<std::int64_t>(1, 256 / std::min(shape.seq_q, kRows) / 8);
  parallel_for(shape.outer * shape.inner * shape.heads * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    Task<kMaxDim> task;
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t block = index % blocks, head = index / blocks % shape.heads;
      const std::int64_t inner = index / blocks / shape.heads % shape.inner;
      const std::int64_t outer = index / blocks / shape.heads / shape.inner;
      const std::int64_t first = block * kRows, rows = std::min(kRows, shape.seq_q - first);
      for (std::int64_t r = 0; r < round_up(rows, kHigh); ++r) {
        std::fill_n(task.query[r], shape.dim, 0.0f);
        if (r < rows)
          load_head({dtype, q}, shape.q, shape.q.at(outer, inner, first + r, head), 0, shape.dim, task.query[r]);
        for (std::int64_t d = 0; d < shape.dim; ++d) task.query[r][d] *= shape.scale;
        std::fill_n(task.out[r], round_up(shape.dim, kWide), 0.0f);
        task.highest[r] = std::numeric_limits<float>::lowest();
        task.sum[r] = 0;
      }
      for (std::int64_t key = 0; key < shape.seq_kv; key += kKeys) {
        const std::int64_t keys = std::min(kKeys, shape.seq_kv - key);
        load_keys(task, shape, dtype, k, v, outer, inner, head, key, keys);
        multiply_keys(task, rows, keys, shape.dim);
        take_softmax(task, round_up(rows, kHigh), keys, shape.dim);
        add_values(task, rows, keys, shape.dim);
      }
      for (std::int64_t r = 0; r < rows; ++r) {
        const float scale = 1 / task.sum[r];
        for (std::int64_t d = 0; d < shape.dim; ++d) task.out[r][d] *= scale;
        store_floats(dtype, out, shape.out.at(outer, inner, first + r, head), shape.dim, task.out[r]);
        if (lse != nullptr)
          lse[(outer * shape.heads + head) * shape.seq_q + first + r] = task.highest[r] + std::log(task.sum[r]);
      }
    }
  });
}

}  // namespace

void compute_on_host(const Shape& shape, DType dtype, const void* q, const void* k, const void* v, void* out,
                     float* lse) {
  (shape.dim <= 256 ? compute<256> : compute<512>)(shape, dtype, q, k, v, out, lse);
}

Status launch_host(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&, const LaunchContext&) {
  compute_on_host(problem.shape(), dtype, tensors.q, tensors.k, tensors.v, tensors.out, tensors.lse);
  return success();
}

}  // namespace noisefloor::attention
