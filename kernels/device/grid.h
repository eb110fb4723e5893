// The limits of a grid; host code, for can_run and for launchers.
#pragma once

#include <cstdint>

namespace noisefloor {

inline constexpr std::int64_t kMaxBlocks = (std::int64_t{1} << 31) - 1;  // gridDim.x, CUDA C++ Programming Guide

}  // namespace noisefloor
