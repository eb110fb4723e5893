// attention: out = softmax(Q K^T scale) V, per image and head; self-attention, and cross-attention where the keys are
// of another sequence. No mask, no dropout: diffusion U-Nets use neither.
//
//   s[b, h, i, j] = scale * sum_d q[b, i, h, d] k[b, j, h, d]
//   lse[b, h, i]  = log(sum_j exp(s[b, h, i, j]))
//   out[b, i, h, d] = sum_j exp(s[b, h, i, j] - lse[b, h, i]) v[b, j, h, d]
//
// Q, K and V are separate tensors or one packed projection (Layout, strided.h), read where they lie. All are of one
// dtype; sums and exponentials are fp32 (double in the reference). Source: Vaswani et al., arXiv:1706.03762.
#pragma once

#include <cstdint>

#include "kernels/attention/strided.h"
#include "kernels/core/definition.h"

namespace noisefloor::attention {

// What attention and its backward pass say of it.
struct Fields {
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t seq_q = 0;   // queries
  std::int64_t seq_kv = 0;  // keys and values; of a packed layout, seq_q
  std::int64_t dim = 0;     // of a head
  Layout layout = Layout::separate;
  double scale = 0;  // 0: 1 / sqrt(dim)

  Shape shape() const { return make_shape(layout, batch, 1, heads, seq_q, seq_kv, dim, scale); }
};
void visit_fields(Fields& fields, FieldVisitor& visit);
void check_fields(const Fields& fields);

struct Problem : Fields {
  bool lse = false;  // also write the log-sum-exp of each row, as a backward pass needs it
};

// Device pointers (host pointers for `host`), 16-byte aligned, T the row's dtype. `q`, `k` and `v` are the same pointer
// for a packed layout: the start of that tensor.
struct Tensors {
  const void* q = nullptr;  // T [batch, seq_q, heads, dim]; packed: tensor qkv, [batch, seq_q, ...] as Layout says
  const void* k = nullptr;  // T [batch, seq_kv, heads, dim]
  const void* v = nullptr;  // T [batch, seq_kv, heads, dim]
  void* out = nullptr;      // T [batch, seq_q, heads, dim]
  float* lse = nullptr;     // fp32 [batch, heads, seq_q]; null without lse
};

// The op. A C++ program calls a row of variants() directly: ask row.can_run(problem, dtype), then row.launch(problem,
// dtype, tensors, {}, context); ptx_sm90a_wide alone may need a workspace, of row.workspace_bytes(problem, dtype,
// device). launch returns invalid_argument for a pointer that is null or not 16-byte aligned, and cuda_error with the
// runtime's code when the launch fails; it never synchronises.
using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a,
    launch_ptx_short_sm90a, launch_ptx_wide_sm90a;

// Vector accesses need 16-byte aligned tensors; a tensor that the problem has must not be null.
Status check_pointers(const Problem& problem, const Tensors& tensors);

// What can_run checks for the launchers.
inline constexpr std::int64_t kTiledDim = 256;  // the widest head of `tiled` and in PTX: of one tile
inline constexpr std::int64_t kShortKeys = 80;  // that ptx_sm90a_short takes

}  // namespace noisefloor::attention
