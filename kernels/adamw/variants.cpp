// The variants of adamw, best last. What each does is in README.md.
#include "kernels/adamw/adamw.h"
#include "kernels/device/limits.h"

namespace noisefloor::adamw {
namespace {

Support streams_parameters(const Problem& p, DType) {
  return streams(1, p.elements, DType::fp32);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(),
    NOISEFLOOR_NAIVE(),
    {kTensorCoreSm80, not_applicable("no numbers of two parameters meet in a step: there is no product")},
    NOISEFLOOR_TILED(streams_parameters),
    NOISEFLOOR_PTX_SM90A(streams_parameters),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::adamw
