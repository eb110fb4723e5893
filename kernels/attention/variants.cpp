// The variants of attention. What each variant does better than the one below is in README.md.
#include "kernels/attention/attention.h"
#include "kernels/attention/schedule.h"
#include "kernels/device/limits.h"

namespace noisefloor::attention {
namespace {

Support can_run_naive(const Problem& p, DType) {
  if (p.shape().rows() / kNaiveRows >= kMaxBlocks) return unsupported("needs batch * heads * seq_q below 2^34");
  return supported();
}

Support can_run_tiled(const Problem& p, DType dtype) {
  if (p.dim > kTiledDim) return unsupported("needs a head size of at most 256: a head is one tile");
  return can_run_naive(p, dtype);
}

Support can_run_sm80(const Problem& p, DType dtype) {
  if (const Support support = can_run_naive(p, dtype); !support) return support;
  if (const Support support = reads_heads_in_pieces(p.layout, p.dim, dtype); !support) return support;
  if (p.dim > kTiledDim && p.batch * p.heads * p.seq_q > kMaxBlocks / 2)
    return unsupported("needs batch * heads * seq_q below 2^30 at a head size above 256: two blocks a tile");
  if (p.batch * p.heads * p.seq_q > kMaxBlocks) return unsupported("needs batch * heads * seq_q below 2^31");
  return supported();
}

Support can_run_sm90a(const Problem& p, DType dtype) {
  const Support support = can_run_tiled(p, dtype);
  return support ? can_run_sm80(p, dtype) : support;
}

Support can_run_short_sm90a(const Problem& p, DType dtype) {
  if (p.seq_kv > kShortKeys) return unsupported("needs seq_kv of at most 80: one tile of keys");
  return can_run_sm90a(p, dtype);
}

Support can_run_wide_sm90a(const Problem& p, DType dtype) {
  if (p.dim <= kTiledDim) return unsupported("needs a head size above 256: smaller heads have variants of their own");
  return can_run_sm80(p, dtype);
}

static_assert(kLargestLogit == 0x1p26f);
constexpr const char* kLimit = "scaled logits up to 6.7e7 (2^26)";

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(),
    NOISEFLOOR_NAIVE(can_run_naive),
    NOISEFLOOR_TILED(can_run_tiled),
    {{"tensor_core_sm80", Kind::tensor_core, Arch::sm80, kLimit},
     {NOISEFLOOR_IF_SM80(launch_tensor_core_sm80), can_run_sm80}},
    {{"ptx_sm90a", Kind::ptx, Arch::sm90a, kLimit},
     {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), can_run_sm90a},
     schedule_choices},
    {{"ptx_sm90a_short", Kind::ptx, Arch::sm90a, kLimit},
     {NOISEFLOOR_IF_SM90A(launch_ptx_short_sm90a), can_run_short_sm90a}},
    {{"ptx_sm90a_wide", Kind::ptx, Arch::sm90a, kLimit},
     {NOISEFLOOR_IF_SM90A(launch_ptx_wide_sm90a), can_run_wide_sm90a, wide_workspace_bytes},
     wide_choices}};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::attention
