// The variants, best last. What each variant does is in README.md.
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
    NOISEFLOOR_NAIVE(any_problem, NOISEFLOOR_IF_CUDA(naive_workspace_bytes)),
    {kTensorCoreSm80, not_written("sums of dv and dv xh by mma are to come")},
    {kPtxSm90a, not_written("one read of x and dy, held in the shared memory of a cluster, is to come")},
    NOISEFLOOR_TILED(any_problem, NOISEFLOOR_IF_CUDA(tiled_workspace_bytes)),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::groupnorm_backward
