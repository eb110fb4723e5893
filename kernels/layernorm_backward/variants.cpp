// The variants of layernorm_backward, best last. What each variant does is in README.md.
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {
namespace {

constexpr Definition::Variant kVariants[] = {
    NOISEFLOOR_HOST(any_problem, host_workspace_bytes),
};

}  // namespace

std::span<const Definition::Variant> variants() {
  return kVariants;
}

}  // namespace noisefloor::layernorm_backward
