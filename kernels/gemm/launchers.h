// The launchers behind variants.cpp, each in the file of its name, and the limits that can_run checks for them.
#pragma once

#include "kernels/device/limits.h"
#include "kernels/gemm/gemm.h"
#include "kernels/product/sm80_plan.h"

namespace noisefloor::gemm {

// Output tiles of rows x columns that cover D; every GPU variant launches one block per tile, numbered in one
// dimension.
constexpr std::int64_t tile_count(const Problem& problem, std::int64_t rows, std::int64_t columns) {
  return ((problem.m + rows - 1) / rows) * ((problem.n + columns - 1) / columns);
}

// Vector accesses need 16-byte aligned tensors; a tensor that the problem has must not be null.
Status check_pointers(const Problem& problem, const Tensors& tensors);

Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm75, launch_tensor_core_sm80,
    launch_ptx_sm90a, launch_ptx_small_m_sm90a;
Definition::Variant::WorkspaceBytes host_workspace_bytes;

inline constexpr int kNaiveTile = 16;
inline constexpr int kTiledTile = 128;
inline constexpr int kSm75Tile = 128;
inline constexpr std::int64_t kSmallM = 8;  // rows of A that ptx_sm90a_small_m takes

// tensor_core_sm80's tiles and parts of k.
using product::Sm80Plan;
using product::Sm80Shape;
using product::Sm80Tile;

inline product::Extents extents(const Problem& problem) {
  return {problem.m, problem.n, problem.k, problem.gated()};
}
inline Sm80Plan choose_sm80_plan(const Problem& problem, const DeviceInfo& device) {
  return product::choose_sm80_plan(extents(problem), device);
}

// tensor_core_sm80 of layouts nn and tn, behind its checks.
Status launch_sm80_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Sm80Plan& plan,
                            float* partials, const LaunchContext& context);

}  // namespace noisefloor::gemm
