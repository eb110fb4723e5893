// The variants of temporal_attention. What each variant does better than the one below is in README.md.
#include "kernels/device/limits.h"
#include "kernels/temporal_attention/temporal_attention.h"

namespace noisefloor::temporal_attention {
namespace {

Support can_run_naive(const Problem& p, DType) {
  if (p.shape().rows() / kNaiveRows >= kMaxBlocks) return unsupported("needs batch * frames * hw * heads below 2^34");
  return supported();
}

Support can_run_tiled(const Problem& p, DType) {
  if (p.units() / kTiledUnits >= kMaxBlocks) return unsupported("needs batch * hw * heads below 2^33");
  return supported();
}

Support can_run_sm80(const Problem& p, DType dtype) {
  if (const Support support = attention::reads_heads_in_pieces(p.layout, p.dim, dtype); !support) return support;
  if (p.units() > kMaxBlocks / 2) return unsupported("needs batch * hw * heads below 2^30");
  return supported();
}

constexpr Definition::Variant kVariants[] = {NOISEFLOOR_HOST(), NOISEFLOOR_NAIVE(can_run_naive),
                                             NOISEFLOOR_TILED(can_run_tiled), NOISEFLOOR_TENSOR_CORE_SM80(can_run_sm80),
                                             NOISEFLOOR_PTX_SM90A(can_run_sm80)};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::temporal_attention
