// The variants of grad_norm, best last. What each does is in README.md.
#include "kernels/grad_norm/grad_norm.h"

namespace noisefloor::grad_norm {
namespace {

Support streams_gradients(const Problem& p, DType) {
  return streams(1, p.elements, DType::fp32);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),         NOISEFLOOR_NAIVE(any_problem, sums_bytes),
    NOISEFLOOR_TENSOR_CORE_SM80(streams_gradients, sums_bytes), NOISEFLOOR_TILED(streams_gradients, sums_bytes),
    NOISEFLOOR_PTX_SM90A(streams_gradients, sums_bytes),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::grad_norm
