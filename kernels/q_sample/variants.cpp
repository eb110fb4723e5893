// The ladder of q_sample. What each rung does better than the one below is in README.md.
#include "kernels/q_sample/launchers.h"

namespace noisefloor::q_sample {
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

}  // namespace noisefloor::q_sample
