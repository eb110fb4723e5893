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

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
    NOISEFLOOR_NAIVE(any_problem, NOISEFLOOR_IF_CUDA(naive_workspace_bytes)),
    {kTensorCoreSm80, not_written("sums over rows by mma are to come")},
    {kPtxSm90a, not_written("rows by bulk copies into shared-memory stages are to come")},
    NOISEFLOOR_TILED(for_tiled, NOISEFLOOR_IF_CUDA(tiled_workspace_bytes)),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::layernorm_backward
