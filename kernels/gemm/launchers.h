// The launchers behind variants.cpp, each in the file of its name, and the limits that can_run checks for them.
#pragma once

#include "kernels/gemm/gemm.h"

namespace noisefloor::gemm {

// Output tiles of rows x columns that cover D; every GPU variant launches one block per tile, numbered in one
// dimension.
constexpr std::int64_t tile_count(const Problem& problem, std::int64_t rows, std::int64_t columns) {
  return ((problem.m + rows - 1) / rows) * ((problem.n + columns - 1) / columns);
}
inline constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 1;  // gridDim.x, CUDA C++ Programming Guide

Launcher launch_host;
std::size_t host_workspace_bytes(const Problem& problem, DType dtype, const DeviceInfo& device);

inline constexpr int kNaiveTile = 16;
Launcher launch_naive;

}  // namespace noisefloor::gemm
