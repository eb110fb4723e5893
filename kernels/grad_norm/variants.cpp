// The variants of grad_norm, best last. What each does is in README.md.
#include "kernels/device/limits.h"
#include "kernels/grad_norm/grad_norm.h"

namespace noisefloor::grad_norm {
namespace {

std::size_t sums_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(partial_sums(p)) * sizeof(float);
}

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
