// The variants, best last.
#include "kernels/groupnorm_backward/groupnorm_backward.h"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::groupnorm_backward
