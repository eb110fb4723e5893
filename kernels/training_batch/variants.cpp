// The variants of training_batch, best last. What each does is in README.md.
#include "kernels/training_batch/training_batch.h"

namespace noisefloor::training_batch {
namespace {

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(),
    {kNaive, not_written("comes next")},
    {kTensorCoreSm80, not_written("sums as products with ones: a later step of training")},
    {kPtxSm90a, not_written("a later step of training: a step's time is elsewhere")},
    {kTiled, not_written("comes next")},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::training_batch
