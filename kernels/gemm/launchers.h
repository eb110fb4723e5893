// The launchers behind variants.cpp, each in the file of its name, and the limits that can_run checks for them.
#pragma once

#include "kernels/device/grid.h"
#include "kernels/gemm/gemm.h"

namespace noisefloor::gemm {

// Output tiles of rows x columns that cover D; every GPU variant launches one block per tile, numbered in one
// dimension.
constexpr std::int64_t tile_count(const Problem& problem, std::int64_t rows, std::int64_t columns) {
  return ((problem.m + rows - 1) / rows) * ((problem.n + columns - 1) / columns);
}

Launcher launch_host;
std::size_t host_workspace_bytes(const Problem& problem, DType dtype, const DeviceInfo& device);

// Vector accesses need 16-byte aligned tensors; a tensor that the problem has must not be null.
inline Status check_pointers(const Problem& problem, const Tensors& tensors) {
  const auto bad = [](const void* pointer, bool present) {
    return present && (pointer == nullptr || reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0);
  };
  if (bad(tensors.a, true) || bad(tensors.b, true) || bad(tensors.bias, problem.bias) ||
      bad(tensors.residual, problem.residual) || bad(tensors.d, true))
    return failure(StatusCode::invalid_argument, "gemm: a tensor is null or not 16-byte aligned");
  return success();
}

inline constexpr int kNaiveTile = 16;
Launcher launch_naive;

inline constexpr int kTiledTile = 128;
Launcher launch_tiled;

inline constexpr int kSm75Tile = 128;
Launcher launch_tensor_core_sm75;

Launcher launch_tensor_core_sm80;  // its tiles: sm80_plan.h

Launcher launch_ptx_sm90a;

inline constexpr std::int64_t kSmallM = 8;  // rows of A that ptx_sm90a_small_m takes
Launcher launch_ptx_small_m_sm90a;

}  // namespace noisefloor::gemm
