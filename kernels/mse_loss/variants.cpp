// The variants of mse_loss, best last. What each does is in README.md.
#include "kernels/mse_loss/mse_loss.h"

namespace noisefloor::mse_loss {
namespace {

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
    {kNaive, not_written("comes next")},
    {kTensorCoreSm80, not_written("sums as products with ones: a later step of training")},
    {kPtxSm90a, not_written("a later step of training: a step's time is elsewhere")},
    {kTiled, not_written("comes next")},
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::mse_loss
