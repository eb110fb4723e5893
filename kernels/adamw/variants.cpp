// The variants of adamw, best last. What each does is in README.md.
#include "kernels/adamw/adamw.h"
#include "kernels/device/limits.h"

namespace noisefloor::adamw {
namespace {

Support can_run_tiled(const Problem& p, DType) {
  return streams(1, p.elements, DType::fp32);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(),
    NOISEFLOOR_NAIVE(),
    {kTensorCoreSm80, not_applicable("no numbers of two parameters meet in a step: there is no product")},
    {kPtxSm90a, not_written("a later step of training")},
    NOISEFLOOR_TILED(can_run_tiled),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::adamw
