// The ladder of temporal_attention. What each rung does better than the one below is in README.md.
#include "kernels/temporal_attention/launchers.h"

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

constexpr Definition::Variant kVariants[] = {
    {kHost, launch_host},
    {kNaive, {NOISEFLOOR_IF_CUDA(launch_naive), can_run_naive}},
    {kTiled, {NOISEFLOOR_IF_CUDA(launch_tiled), can_run_tiled}},
    {kTensorCoreSm80, {NOISEFLOOR_IF_SM80(launch_tensor_core_sm80), can_run_sm80}},
    {kPtxSm90a, {NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), can_run_sm80}},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::temporal_attention
