// The ladder, best last.
#include "kernels/groupnorm/launchers.h"

namespace noisefloor::groupnorm {
namespace {

Support any_problem(const Problem&, DType) {
  return supported();
}

const Variant<Definition> kVariants[] = {
    {"host", Kind::host, Arch::host, launch_host, any_problem, host_workspace_bytes},
    {"naive", Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_naive), any_problem},
    {"tiled", Kind::tiled, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_tiled), any_problem,
     NOISEFLOOR_IF_CUDA(tiled_workspace_bytes)},
};

}  // namespace

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::groupnorm
