// What `attention` and `temporal_attention` share: queries, keys and values that are read where they lie, by strides.
//
// Both ops compute, for every outer index, inner index and head, out = softmax(Q K^T scale) V over a sequence:
//
//   op                  outer   inner         sequence   tokens lie as
//   attention           batch   1             pixels     [batch, seq]
//   temporal_attention  batch   height*width  frames     [batch, frames, height*width]
#pragma once

#include <cstdint>
#include <span>

#include "kernels/core/definition.h"

namespace noisefloor {
class Extents;
struct HostTensor;
class TensorVisitor;
}  // namespace noisefloor

namespace noisefloor::attention {

// How the numbers of a token lie. `separate`: three tensors [..., heads, dim]. The others are one tensor, the output of
// a single projection:
//   packed_3hd  [..., 3, heads, dim]  one product with the three weight matrices one after the other (diffusers,
//   PyTorch);
//                                     also ADM's new order (QKVAttention)
//   packed_h3d  [..., heads, 3, dim]  ADM's legacy order (QKVAttentionLegacy), that of its published checkpoints
//   packed_hd3  [..., heads, dim, 3]  EDM's UNetBlock: query, key and value of a channel are neighbours. No 16-byte
//                                     access helps there; permuting the weight's rows once at load gives packed_3hd
enum class Layout { separate, packed_3hd, packed_h3d, packed_hd3 };
inline constexpr const char* kLayoutNames[] = {"separate", "packed_3hd", "packed_h3d", "packed_hd3"};

// Where a running maximum of logits begins: below any but -infinity. Not -FLT_MAX: times a scale above 0.69 that is
// -infinity: NaN for a row whose first tile of keys has no finite logit. What is no key, or lower, weighs as -infinity.
inline constexpr float kLowest = -1e30f;

// Tensor-core kernels weigh a logit s as 2^(s * c - shift), c the scale times log2(e), shift the row's maximum times c,
// rounded. The rounding multiplies all weights and their sum alike, as long as they neither overflow nor vanish: up to
// scaled logits of 2^26, where it is 2^4 at most, beside 2^8 of slack (ptx_sm90a_tile.cuh), and fp16 ends at 2^16.
inline constexpr float kLargestLogit = 0x1p26f;
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

constexpr bool is_packed(Layout layout) {
  return layout != Layout::separate;
}

// Where element (outer, inner, seq, head, d) of a tensor lies, in elements from the tensor's start.
struct View {
  std::int64_t offset, outer, inner, seq, head, element;

  constexpr std::int64_t at(std::int64_t o, std::int64_t i, std::int64_t s, std::int64_t h) const {
    return offset + o * outer + i * inner + s * seq + h * head;
  }
};

enum class Part { query, key, value };

struct Shape {
  std::int64_t outer, inner, heads, seq_q, seq_kv, dim;
  float scale;
  View q, k, v, out;

  constexpr std::int64_t rows() const { return outer * inner * heads * seq_q; }
};

// The view of one part whose tokens lie as [outer, seq, inner].
constexpr View view_of(Layout layout, Part part, std::int64_t inner, std::int64_t seq, std::int64_t heads,
                       std::int64_t dim) {
  const std::int64_t which = static_cast<std::int64_t>(part);
  const std::int64_t token = heads * dim * (is_packed(layout) ? 3 : 1);
  View view{0, seq * inner * token, token, inner * token, dim, 1};
  switch (layout) {
    case Layout::separate:
      break;
    case Layout::packed_3hd:
      view.offset = which * heads * dim;
      break;
    case Layout::packed_h3d:
      view.offset = which * dim;
      view.head = 3 * dim;
      break;
    case Layout::packed_hd3:
      view.offset = which;
      view.head = 3 * dim;
      view.element = 3;
      break;
  }
  return view;
}

// The whole shape; `scale` 0 stands for 1 / sqrt(dim).
Shape make_shape(Layout layout, std::int64_t outer, std::int64_t inner, std::int64_t heads, std::int64_t seq_q,
                 std::int64_t seq_kv, std::int64_t dim, double scale);

// Queries, keys and values among an op's tensors: three of their own, or one that is packed, to which all members
// point. The extents before the heads: of queries, of keys and values, and of packed ones. They are filled with normal
// numbers of that deviation.
void visit_qkv(TensorVisitor& visit, const void*& q, const void*& k, const void*& v, Layout layout,
               const Extents& queries, const Extents& keys, const Extents& packed, double deviation = 1);

// What variants ask for that read heads in vectors of 16 bytes, at any token and head.
inline Support reads_heads_in_pieces(Layout layout, std::int64_t dim, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (dim % 8 != 0) return unsupported("needs a head size that is a multiple of 8: heads are read in 16-byte pieces");
  if (layout == Layout::packed_hd3)
    return unsupported("needs contiguous heads: permute the projection's rows to packed_3hd");
  return supported();
}

// What both ops allow their output.
Tolerance error_bounds(DType dtype, const Shape& shape);

// The oracle: the wanted elements of the output [outer, seq_q, inner, heads, dim], or with `lse` of the log-sum-exp
// [outer, heads, seq_q], in double.
void softmax_reference(const Shape& shape, const HostTensor& q, const HostTensor& k, const HostTensor& v, bool lse,
                       std::span<const std::int64_t> elements, std::span<double> values);

// Elements [first, first + count) of a head's vector that begins at `start`. Floats hold bf16, fp16 and fp32 exactly.
void load_head(const HostTensor& tensor, const View& view, std::int64_t start, std::int64_t first, std::int64_t count,
               float* values);

// The host variant of both ops: host pointers to the tensors' starts; `lse` may be null.
void compute_on_host(const Shape& shape, DType dtype, const void* q, const void* k, const void* v, void* out,
                     float* lse);

// The naive variant of both, a warp a query: device pointers.
inline constexpr std::int64_t kNaiveRows = 8;  // queries of a block
Status launch_naive_attention(const Shape& shape, DType dtype, const void* q, const void* k, const void* v, void* out,
                              float* lse, const LaunchContext& context);

}  // namespace noisefloor::attention
