// The variants of training_batch, best last. What each does is in README.md.
#include "kernels/device/limits.h"
#include "kernels/training_batch/training_batch.h"

namespace noisefloor::training_batch {
namespace {

Support can_run_tiled(const Problem& p, DType) {
  return streams(p.batch, p.elements(), DType::fp32);
}

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(),
    NOISEFLOOR_NAIVE(),
    {kTensorCoreSm80, not_written("x as a product with two diagonals, as in q_sample: a later step of training")},
    {kPtxSm90a, not_written("a later step of training")},
    NOISEFLOOR_TILED(can_run_tiled),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::training_batch
