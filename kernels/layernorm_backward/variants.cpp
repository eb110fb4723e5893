// The variants of layernorm_backward, best last. What each variant does is in README.md.
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {
namespace {

Support for_tiled(const Problem& p, DType dtype) {
  const std::int64_t bytes = p.channels * static_cast<std::int64_t>(size_of(dtype));
  if (bytes % 16 != 0) return unsupported("needs channels that are a multiple of 16 bytes");
  if (bytes > 16 * 1024) return unsupported("needs a row of at most 16 KiB, the registers of a block; see naive");
  if (p.images * p.channels > INT32_MAX) return unsupported("needs images * channels < 2^31");
  return supported();
}

Support for_tensor_core_sm80(const Problem& p, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  return for_tiled(p, dtype);
}

Support for_ptx_sm90a(const Problem& p, DType dtype) {
  if (p.channels * static_cast<std::int64_t>(size_of(dtype)) > 4 * 1024)
    return unsupported("needs a row of at most 4 KiB, a vector for each thread of a block; see tiled");
  if (p.rows > INT32_MAX) return unsupported("needs fewer than 2^31 rows");
  return for_tiled(p, dtype);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
    NOISEFLOOR_NAIVE(any_problem, NOISEFLOOR_IF_CUDA(naive_workspace_bytes)),
    NOISEFLOOR_TENSOR_CORE_SM80(for_tensor_core_sm80, NOISEFLOOR_IF_SM80(tensor_core_sm80_workspace_bytes)),
    NOISEFLOOR_TILED(for_tiled, NOISEFLOOR_IF_CUDA(tiled_workspace_bytes)),
    NOISEFLOOR_PTX_SM90A(for_ptx_sm90a, NOISEFLOOR_IF_SM90A(ptx_sm90a_workspace_bytes)),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::layernorm_backward
