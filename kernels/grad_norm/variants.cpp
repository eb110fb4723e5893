// The variants of grad_norm, best last. What each does is in README.md.
#include "kernels/grad_norm/grad_norm.h"

namespace noisefloor::grad_norm {
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

}  // namespace noisefloor::grad_norm
