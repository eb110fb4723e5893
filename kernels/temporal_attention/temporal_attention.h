// temporal_attention: out = softmax(Q K^T scale) V along the frames of a video, for every pixel and head on its own, in
// place: tokens lie as [batch, frames, height*width], and nothing is permuted.
//
//   s[b, p, h, i, j] = scale * sum_d q[b, i, p, h, d] k[b, j, p, h, d]
//   out[b, i, p, h, d] = sum_j softmax_j(s[b, p, h, i, :]) v[b, j, p, h, d]
//
// Q, K and V are separate tensors or one packed projection (attention::Layout), read where they lie. All are of one
// dtype; sums and exponentials are fp32 (double in the reference). Source: the temporal layers of Blattmann et al.,
// "Stable Video Diffusion" (arXiv:2311.15127).
#pragma once

#include <cstdint>

#include "kernels/attention/strided.h"
#include "kernels/core/definition.h"

namespace noisefloor::temporal_attention {

using attention::Layout;
using attention::Shape;

inline constexpr std::int64_t kMaxFrames = 32;

struct Problem {
  std::int64_t batch = 0;   // videos
  std::int64_t frames = 0;  // the sequence, 1 to 32
  std::int64_t hw = 0;      // height * width
  std::int64_t heads = 0;
  std::int64_t dim = 0;  // of a head
  Layout layout = Layout::separate;
  double scale = 0;  // 0: 1 / sqrt(dim)

  std::int64_t units() const { return batch * hw * heads; }  // sequences, each of `frames` queries and keys
  Shape shape() const { return attention::make_shape(layout, batch, hw, heads, frames, frames, dim, scale); }
};

// Device pointers (host pointers for `host`), 16-byte aligned, T the row's dtype. `q`, `k` and `v` are the same pointer
// for a packed layout: the start of that tensor.
struct Tensors {
  const void* q = nullptr;  // T [batch, frames, hw, heads, dim]; packed: qkv, [batch, frames, hw, ...] as Layout says
  const void* k = nullptr;  // T [batch, frames, hw, heads, dim]
  const void* v = nullptr;  // T [batch, frames, hw, heads, dim]
  void* out = nullptr;      // T [batch, frames, hw, heads, dim]
};

// The op; its rows are called as attention::Definition says.
using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

// Vector accesses need 16-byte aligned tensors.
Status check_pointers(const Tensors& tensors);

// What can_run checks for the launchers.
using attention::kNaiveRows;                    // queries of a block of `naive`
inline constexpr std::int64_t kTiledUnits = 4;  // sequences of a block of `tiled`
inline constexpr std::int64_t kSm80Units = 8;   // and of tensor_core_sm80

}  // namespace noisefloor::temporal_attention
