// attention_backward on the host: float, all cores, loops that the compiler vectorises.
//
// Two passes of the same form. One owns kRows queries of a head and walks the keys, kColumns at a time: dq. The other
// owns keys and walks the queries: dk and dv. Either multiplies its rows with the transposed block (logits, and the
// weights' gradients), turns both products into weights, and these with the block into its sums. So no sum is shared
// between tasks, for two products more than the five that are needed. The first pass leaves delta for the second.
//
// Bound: FMA throughput at 1024 keys of 64. Requires: nothing. Numerics: fp32, with vector_exp (1e-7 relative).
#include <algorithm>

#include "kernels/attention_backward/attention_backward.h"
#include "kernels/core/parallel.h"
#include "kernels/core/tensor.h"
#include "kernels/core/vector_math.h"
#include "kernels/product/host_product.h"

namespace noisefloor::attention_backward {
namespace {

using attention::View;
using host_product::kMicroN;
using host_product::kStripM;
using host_product::round_up;
using host_product::strip_kernel;

// A task's buffers, on its stack: 131 KiB of heads up to 64, else 398 KiB.
template <std::int64_t kMaxDim, std::int64_t kOwn, std::int64_t kBlock>
struct Task {
  static constexpr std::int64_t kDim = kMaxDim, kRows = kOwn, kColumns = kBlock;
  static constexpr std::int64_t kStride = kDim + 16;  // a line more: rows do not meet in the same sets of the cache
  static_assert(kRows % kStripM == 0 && kColumns % kMicroN == 0 && kDim % kMicroN == 0, "whole micro-kernels");
  alignas(64) float own[2][kRows][kStride];       // queries and dout, or keys and values
  alignas(64) float block[2][kColumns][kStride];  // the other two
  alignas(64) float across[2][kDim][kColumns];    // transposed
  alignas(64) float weights[2][kRows][kColumns];  // own * across, then p and s
  alignas(64) float sums[2][kRows][kStride];
  float lse[std::max(kRows, kColumns)], delta[std::max(kRows, kColumns)];  // of the queries
};

// A tensor and how its heads lie.
struct Side {
  const void* data;
  View view;
};

// One head of one image.
struct Head {
  const Shape& shape;
  DType dtype;
  const Tensors& tensors;
  float* delta;  // of the whole problem
  std::int64_t outer, head;

  void load(const Side& side, std::int64_t seq, float* row) const {
    attention::load_head({dtype, side.data}, side.view, side.view.at(outer, 0, seq, head), 0, shape.dim, row);
    std::fill(row + shape.dim, row + round_up(shape.dim, kMicroN), 0.0f);
  }
  void store(void* data, const View& view, std::int64_t seq, const float* row) const {
    const std::int64_t start = view.at(outer, 0, seq, head);
    if (view.element == 1) return store_floats(dtype, data, start, shape.dim, row);
    for (std::int64_t d = 0; d < shape.dim; ++d)
      store_element(dtype, data, start + d * view.element, static_cast<double>(row[d]));
  }
  std::int64_t query(std::int64_t seq) const { return (outer * shape.heads + head) * shape.seq_q + seq; }
};

// product[s] = own[s] * across[s].
template <class Task>
void multiply(Task& task, std::int64_t rows, std::int64_t columns, std::int64_t dim) {
  for (int s = 0; s < 2; ++s)
    for (std::int64_t c = 0; c < columns; c += kMicroN)
      for (std::int64_t r = 0; r < rows; r += kStripM)
        strip_kernel<Task::kStride, Task::kColumns, Task::kColumns, false>(task.own[s][r], task.across[s][0] + c,
                                                                           task.weights[s][r] + c, dim);
}

// sums[to] += weights[from] * block[to].
template <class Task>
void add(Task& task, int to, int from, std::int64_t rows, std::int64_t columns, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; d += kMicroN)
    for (std::int64_t r = 0; r < rows; r += kStripM)
      strip_kernel<Task::kColumns, Task::kStride, Task::kStride, true>(task.weights[from][r], task.block[to][0] + d,
                                                                       task.sums[to][r] + d, columns);
}

// The products become p and s. Queries are the rows, or with kByKeys the columns.
template <bool kByKeys, class Task>
void weigh(Task& task, float scale, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float *logits = task.weights[0][r], *gradients = task.weights[1][r];
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int64_t query = kByKeys ? c : r;
      const float p = vector_exp(scale * logits[c] - task.lse[query]);
      logits[c] = p;
      gradients[c] = scale * p * (gradients[c] - task.delta[query]);
    }
  }
}

template <class Task>
void load_block(Task& task, const Head& head, const Side (&sides)[2], std::int64_t first, std::int64_t count) {
  for (int s = 0; s < 2; ++s) {
    for (std::int64_t c = 0; c < count; ++c) {
      head.load(sides[s], first + c, task.block[s][c]);
      for (std::int64_t d = 0; d < head.shape.dim; ++d) task.across[s][d][c] = task.block[s][c][d];
    }
    for (std::int64_t d = 0; d < head.shape.dim; ++d)
      std::fill(task.across[s][d] + count, task.across[s][d] + round_up(count, kMicroN), 0.0f);
  }
}

// Rows past the problem's are zeros.
template <class Task>
void load_own(Task& task, const Head& head, const Side (&sides)[2], std::int64_t first, std::int64_t count) {
  for (int s = 0; s < 2; ++s)
    for (std::int64_t r = 0; r < round_up(count, kStripM); ++r) {
      std::fill_n(task.sums[s][r], Task::kStride, 0.0f);
      if (r < count)
        head.load(sides[s], first + r, task.own[s][r]);
      else
        std::fill_n(task.own[s][r], Task::kStride, 0.0f);
    }
}

// lse and delta of queries [first, first + count); delta is computed from their dout where that is given.
template <class Task>
void load_queries(Task& task, const Head& head, std::int64_t first, std::int64_t count, bool computes) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t query = head.query(first + i);
    if (computes) {
      alignas(64) float o[Task::kStride];
      head.load({head.tensors.o, head.shape.out}, first + i, o);
      float delta = 0;
      for (std::int64_t d = 0; d < head.shape.dim; ++d) delta += o[d] * task.own[1][i][d];
      head.delta[query] = delta;
    }
    task.lse[i] = head.tensors.lse[query];
    task.delta[i] = head.delta[query];
  }
}

// One task: rows [first, first + count) of queries, or with kByKeys of keys.
template <bool kByKeys, class Task>
void walk(Task& task, const Head& head, std::int64_t first, std::int64_t count) {
  const Shape& shape = head.shape;
  const Tensors& t = head.tensors;
  const Side queries[] = {{t.q, shape.q}, {t.dout, shape.out}}, keys[] = {{t.k, shape.k}, {t.v, shape.v}};
  load_own(task, head, kByKeys ? keys : queries, first, count);
  if (!kByKeys) load_queries(task, head, first, count, true);
  const std::int64_t rows = round_up(count, kStripM), others = kByKeys ? shape.seq_q : shape.seq_kv;
  for (std::int64_t at = 0; at < others; at += Task::kColumns) {
    const std::int64_t columns = std::min(Task::kColumns, others - at);
    load_block(task, head, kByKeys ? queries : keys, at, columns);
    if (kByKeys) load_queries(task, head, at, columns, false);
    multiply(task, rows, columns, shape.dim);
    weigh<kByKeys>(task, shape.scale, count, columns);
    add(task, 0, 1, rows, columns, shape.dim);
    if (kByKeys) add(task, 1, 0, rows, columns, shape.dim);
  }
  for (std::int64_t r = 0; r < count; ++r) {
    head.store(kByKeys ? t.dk : t.dq, kByKeys ? shape.k : shape.q, first + r, task.sums[0][r]);
    if (kByKeys) head.store(t.dv, shape.v, first + r, task.sums[1][r]);
  }
}

template <bool kByKeys, class Task>
void pass(const Shape& shape, DType dtype, const Tensors& tensors, float* delta) {
  const std::int64_t length = kByKeys ? shape.seq_kv : shape.seq_q;
  const std::int64_t blocks = (length + Task::kRows - 1) / Task::kRows;
  // Neighbouring heads of a token share cache lines; short sequences go several to a task's turn.
  const std::int64_t grain = std::max<std::int64_t>(1, 256 / std::min(length, Task::kRows) / 8);
  parallel_for(shape.outer * shape.heads * blocks, grain, [&](std::int64_t begin, std::int64_t end) {
    Task task;
    for (std::int64_t index = begin; index < end; ++index) {
      const std::int64_t first = index % blocks * Task::kRows, head = index / blocks;
      walk<kByKeys>(task, Head{shape, dtype, tensors, delta, head / shape.heads, head % shape.heads}, first,
                    std::min(Task::kRows, length - first));
    }
  });
}

template <class Task>
void both_passes(const Shape& shape, DType dtype, const Tensors& tensors, float* delta) {
  pass<false, Task>(shape, dtype, tensors, delta);
  pass<true, Task>(shape, dtype, tensors, delta);
}

}  // namespace

std::size_t delta_bytes(const Problem& problem, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(problem.batch * problem.heads * problem.seq_q) * sizeof(float);
}

Status launch_host(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                   const LaunchContext&) {
  auto* const delta = static_cast<float*>(scratch.workspace);
  if (delta == nullptr) return failure(StatusCode::invalid_argument, "attention_backward: no workspace");
  (problem.dim <= 64 ? both_passes<Task<64, 32, 64>> : both_passes<Task<512, 16, 32>>)(problem.shape(), dtype, tensors,
                                                                                       delta);
  return success();
}

}  // namespace noisefloor::attention_backward
