// The variants of edm_precondition. What each variant does is in README.md.
#include "kernels/device/limits.h"
#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {
namespace {

constexpr Definition::Variant kVariants[] = {NOISEFLOOR_HOST(), NOISEFLOOR_NAIVE(),
                                             NOISEFLOOR_TENSOR_CORE_SM80(half_images_stream),
                                             NOISEFLOOR_PTX_SM90A(images_stream), NOISEFLOOR_TILED(images_stream)};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::edm_precondition
