// The ladder of timestep_embedding. What each rung does better than the one below is in README.md.
#include "kernels/timestep_embedding/launchers.h"

namespace noisefloor::timestep_embedding {
namespace {

Support can_run_any(const Problem&, DType) {
  return supported();
}

constexpr Variant<Definition> kVariants[] = {
    {"host", noisefloor::Kind::host, Arch::host, launch_host, can_run_any, layers_workspace_bytes},
    {"naive", noisefloor::Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_naive), can_run_any,
     layers_workspace_bytes},
};

}  // namespace

std::size_t layers_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return p.perceptron() ? static_cast<std::size_t>(p.batch * (p.channels + p.hidden)) * sizeof(float) : 0;
}

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::timestep_embedding
