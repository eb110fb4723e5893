// attention and temporal_attention as cuDNN's SDPA operation (the fused flash-attention engines of cuDNN 8.9 and
// newer), autotuned over the engine configurations that it offers. Tensors are read in place, by strides, as ours are.
//
// The operation takes four dimensions, [batch, heads, sequence, head size]. For frames as the sequence, every pixel's
// heads count as heads: that needs the heads of neighbouring pixels to be equally far apart, which they are when Q, K
// and V are separate tensors or packed as packed_h3d.

#include <array>
#include <vector>

#include "baselines/baseline.h"
#include "baselines/cudnn_graph.h"
#include "baselines/cudnn_run.h"
#include "kernels/attention/attention.h"
#include "kernels/temporal_attention/temporal_attention.h"

namespace noisefloor::cudnn {
namespace {

using attention::Layout;
using attention::Shape;
using attention::View;
using AttentionProblem = attention::Problem;
using TemporalProblem = temporal_attention::Problem;

Support can_run_heads(Layout layout, std::int64_t dim, DType dtype) {
  if (dtype == DType::fp32) return unsupported("cuDNN's SDPA takes bf16 and fp16, not fp32");
  if (dim % 8 != 0 || dim > 256)
    return unsupported("cuDNN's SDPA needs a head size that is a multiple of 8, and at most 256");
  if (layout == Layout::packed_hd3) return unsupported("cuDNN's SDPA needs the elements of a head to be contiguous");
  return supported();
}

Support can_run_attention(const AnyProblem& any, DType dtype) {
  const auto& problem = any.as<AttentionProblem>();
  return can_run_heads(problem.layout, problem.dim, dtype);
}

Support can_run_temporal(const AnyProblem& any, DType dtype) {
  const auto& problem = any.as<TemporalProblem>();
  if (problem.layout == Layout::packed_3hd && problem.hw > 1)
    return unsupported("cuDNN's SDPA cannot describe packed_3hd: pixels and heads are not equally far apart");
  return can_run_heads(problem.layout, problem.dim, dtype);
}

// [outer, inner * heads, seq, dim]; `seq` is the number of tokens of this tensor.
struct Operand {
  cudnn::Layout layout;
  std::int64_t offset;  // elements
};

Operand operand(const Shape& shape, const View& view, std::int64_t seq) {
  return {{{shape.outer, shape.inner * shape.heads, seq, shape.dim}, {view.outer, view.head, view.seq, view.element}},
          view.offset};
}

template <class Problem>
std::unique_ptr<BaselineRun> create(const AnyProblem& any, DType dtype, const DeviceInfo&, const Algorithms& earlier) {
  const auto& problem = any.as<Problem>();
  const Shape shape = problem.shape();
  const bool packed = is_packed(problem.layout);
  bool lse = false;
  if constexpr (requires { problem.lse; }) lse = problem.lse;
  auto graph = std::make_unique<Graph>();
  const Operand q = operand(shape, shape.q, shape.seq_q), k = operand(shape, shape.k, shape.seq_kv),
                v = operand(shape, shape.v, shape.seq_kv), out = operand(shape, shape.out, shape.seq_q);
  const int query = graph->input(dtype, q.layout), key = graph->input(dtype, k.layout),
            value = graph->input(dtype, v.layout);
  const Graph::Attention nodes = graph->attention(query, key, value, shape.scale, lse);
  graph->output(nodes.out, dtype, out.layout);
  if (lse)
    graph->output(nodes.lse, DType::fp32,
                  {{shape.outer, shape.heads, shape.seq_q, 1}, {shape.heads * shape.seq_q, shape.seq_q, 1, 1}});

  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const std::array offsets{q.offset * element, k.offset * element, v.offset * element};
  return run_of_graph(std::move(graph), kBuildSeconds, earlier,
                      [offsets, packed](std::span<void* const> pointers, const Scratch&) {
                        std::vector<void*> bound;
                        for (std::size_t i = 0; i < offsets.size(); ++i)
                          bound.push_back(static_cast<char*>(pointers[packed ? 0 : i]) + offsets[i]);
                        bound.insert(bound.end(), pointers.begin() + (packed ? 1 : 3), pointers.end());
                        return bound;
                      });
}

}  // namespace

Baseline attention_baseline() {
  return {"attention", "cudnn", can_run_attention, create<AttentionProblem>, version};
}

Baseline temporal_attention_baseline() {
  return {"temporal_attention", "cudnn", can_run_temporal, create<TemporalProblem>, version};
}

}  // namespace noisefloor::cudnn
