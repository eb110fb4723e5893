// The ladder of attention. What each rung does better than the one below is in README.md.
#include "kernels/core/variant.h"

#include "kernels/attention/launchers.h"

namespace noisefloor::attention {
namespace {

Support can_run_any(const Problem&, DType) {
  return supported();
}

Support can_run_naive(const Problem& p, DType) {
  if (p.shape().rows() / kNaiveRows >= kMaxBlocks) return unsupported("needs batch * heads * seq_q below 2^34");
  return supported();
}

// 16-byte accesses along the head, at any token and head.
Support can_run_sm80(const Problem& p, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (p.dim % 8 != 0) return unsupported("needs a head size that is a multiple of 8: heads are read in 16-byte pieces");
  if (p.layout == Layout::packed_hd3)
    return unsupported("needs contiguous heads: permute the projection's rows to packed_3hd");
  if (p.batch * p.heads * p.seq_q > kMaxBlocks) return unsupported("needs batch * heads * seq_q below 2^31");
  return supported();
}

Support can_run_short_sm90a(const Problem& p, DType dtype) {
  if (p.seq_kv > kShortKeys) return unsupported("needs seq_kv of at most 80: one tile of keys");
  return can_run_sm80(p, dtype);
}

constexpr Variant<Definition> kVariants[] = {
    {"host", Kind::host, Arch::host, launch_host, can_run_any},
    {"naive", Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_naive), can_run_naive},
    {"tiled", Kind::tiled, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_tiled), can_run_naive},
    {"tensor_core_sm80", Kind::tensor_core, Arch::sm80, NOISEFLOOR_IF_SM80(launch_tensor_core_sm80), can_run_sm80},
    {"ptx_sm90a", Kind::ptx, Arch::sm90a, NOISEFLOOR_IF_SM90A(launch_ptx_sm90a), can_run_sm80},
    {"ptx_sm90a_short", Kind::ptx, Arch::sm90a, NOISEFLOOR_IF_SM90A(launch_ptx_short_sm90a), can_run_short_sm90a},
};

}  // namespace

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::attention
