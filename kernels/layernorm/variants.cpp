// The ladder of layernorm. What each rung does better than the one below is in README.md.
#include "kernels/layernorm/launchers.h"

namespace noisefloor::layernorm {
namespace {

Support can_run_any(const Problem&, DType) {
  return supported();
}

constexpr Variant<Definition> kVariants[] = {
    {"host", Kind::host, Arch::host, launch_host, can_run_any},
    {"naive", Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_naive), can_run_any},
};

}  // namespace

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::layernorm
