// attention_backward: the gradients of attention's queries, keys and values, of that of its output.
//
//   p[b, h, i, j]  = exp(scale * sum_d q[b, i, h, d] k[b, j, h, d] - lse[b, h, i])
//   delta[b, h, i] = sum_d dout[b, i, h, d] o[b, i, h, d]
//   s[b, h, i, j]  = scale * p[b, h, i, j] * (sum_d dout[b, i, h, d] v[b, j, h, d] - delta[b, h, i])
//   dq[b, i, h, d] = sum_j s[b, h, i, j] k[b, j, h, d]
//   dk[b, j, h, d] = sum_i s[b, h, i, j] q[b, i, h, d]
//   dv[b, j, h, d] = sum_i p[b, h, i, j] dout[b, i, h, d]
//
// `o` and `lse` are attention's out and lse. Layouts are attention's (strided.h), gradients lie as what they are
// the gradients of. Everything is summed in a fixed order. Source: Dao et al., "FlashAttention" (arXiv:2205.14135).
#pragma once

#include <cstdint>

#include "kernels/attention/attention.h"
#include "kernels/core/definition.h"

namespace noisefloor::attention_backward {

using attention::Layout;
using attention::Shape;
using Problem = attention::Fields;

// Device pointers (host pointers for `host`), 16-byte aligned, T the row's dtype. Of a packed layout `q`, `k` and `v`
// are the same pointer, the start of tensor qkv, and so are `dq`, `dk` and `dv`, that of dqkv.
struct Tensors {
  const void* q = nullptr;     // T [batch, seq_q, heads, dim]; packed: [batch, seq_q, ...] as Layout says
  const void* k = nullptr;     // T [batch, seq_kv, heads, dim]
  const void* v = nullptr;     // T [batch, seq_kv, heads, dim]
  const void* o = nullptr;     // T [batch, seq_q, heads, dim]
  const float* lse = nullptr;  // fp32 [batch, heads, seq_q]
  const void* dout = nullptr;  // T [batch, seq_q, heads, dim]
  void* dq = nullptr;          // as q
  void* dk = nullptr;          // as k
  void* dv = nullptr;          // as v
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

// Vector accesses need 16-byte aligned tensors; a tensor that the problem has must not be null.
Status check_pointers(const Problem& problem, const Tensors& tensors);

// What can_run checks for the launchers.
inline constexpr std::int64_t kNaiveRows = 8;   // queries or keys of a block of `naive`
inline constexpr std::int64_t kTiledDim = 256;  // the widest head of all but `naive`
// Tensor-core variants hold two floats of each query in their workspace, of so many queries (terms.cuh).
inline constexpr std::int64_t kTermRows = 128;
constexpr std::int64_t term_rows(std::int64_t seq_q) {
  return (seq_q + kTermRows - 1) / kTermRows * kTermRows;
}

}  // namespace noisefloor::attention_backward
