// The variants of attention_backward. What each variant does better than the one below is in README.md.
#include <algorithm>

#include "kernels/attention_backward/attention_backward.h"
#include "kernels/device/limits.h"

namespace noisefloor::attention_backward {
namespace {

Support can_run_naive(const Problem& p, DType) {
  if (p.batch * p.heads * std::max(p.seq_q, p.seq_kv) / kNaiveRows >= kMaxBlocks)
    return unsupported("needs batch * heads * the longer sequence below 2^34");
  return supported();
}

Support can_run_tiled(const Problem& p, DType dtype) {
  if (p.dim > kTiledDim) return unsupported("needs a head size of at most 256: a head is one tile");
  return can_run_naive(p, dtype);
}

// delta, fp32 [batch, heads, seq_q].
std::size_t delta_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(p.batch * p.heads * p.seq_q) * sizeof(float);
}

Support can_run_sm80(const Problem& p, DType dtype) {
  if (const Support support = attention::reads_heads_in_pieces(p.layout, p.dim, dtype); !support) return support;
  if (p.dim > kTiledDim) return unsupported("needs a head size of at most 256: a head is one tile");
  if (p.batch * p.heads * term_rows(std::max(p.seq_q, p.seq_kv)) > kMaxBlocks)
    return unsupported("needs batch * heads * the longer sequence, in steps of 128, below 2^31");
  return supported();
}

// Two terms of each query (terms.cuh).
std::size_t terms_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(p.batch * p.heads * term_rows(p.seq_q)) * 2 * sizeof(float);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(), NOISEFLOOR_NAIVE(can_run_naive), NOISEFLOOR_TILED(can_run_tiled, delta_bytes),
    NOISEFLOOR_TENSOR_CORE_SM80(can_run_sm80, terms_bytes), NOISEFLOOR_PTX_SM90A(can_run_sm80, terms_bytes)};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::attention_backward
