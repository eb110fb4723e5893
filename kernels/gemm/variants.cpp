// The ladder of gemm. What each rung does better than the one below is in README.md.
#include "kernels/core/variant.h"

#include "kernels/gemm/gemm.h"
#include "kernels/gemm/launchers.h"

namespace noisefloor::gemm {
namespace {

Support can_run_any(const Problem&, DType) {
  return supported();
}

Support can_run_naive(const Problem& problem, DType) {
  if (tile_count(problem, kNaiveTile, kNaiveTile) > kMaxBlocks)
    return unsupported("needs at most 2^31 - 1 tiles of 16x16");
  return supported();
}

Support can_run_tiled(const Problem& problem, DType) {
  const int columns = problem.gated() ? kTiledTile / 2 : kTiledTile;
  if (tile_count(problem, kTiledTile, columns) > kMaxBlocks) return unsupported("needs at most 2^31 - 1 output tiles");
  return supported();
}

constexpr Variant<Definition> kVariants[] = {
    {"host", Kind::host, Arch::host, launch_host, can_run_any, host_workspace_bytes},
    {"naive", Kind::naive, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_naive), can_run_naive},
    {"tiled", Kind::tiled, Arch::any_gpu, NOISEFLOOR_IF_CUDA(launch_tiled), can_run_tiled},
};

}  // namespace

std::span<const Variant<Definition>> Definition::variants() {
  return kVariants;
}

}  // namespace noisefloor::gemm
