// The variants of mse_loss, best last. What each does is in README.md.
#include "kernels/mse_loss/mse_loss.h"

namespace noisefloor::mse_loss {
namespace {

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),     NOISEFLOOR_NAIVE(any_problem, sums_bytes),
    NOISEFLOOR_TENSOR_CORE_SM80(images_stream, sums_bytes), NOISEFLOOR_TILED(images_stream, sums_bytes),
    NOISEFLOOR_PTX_SM90A(images_stream, sums_bytes),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::mse_loss
