// The launchers behind variants.cpp, each in the file of its name, and the limits that can_run checks for them.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/device/limits.h"

namespace noisefloor::attention {

// Vector accesses need 16-byte aligned tensors; a tensor that the problem has must not be null.
Status check_pointers(const Problem& problem, const Tensors& tensors);

Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a,
    launch_ptx_short_sm90a, launch_ptx_wide_sm90a;
inline constexpr std::int64_t kNaiveRows = 8;   // queries of a block of `naive`
inline constexpr std::int64_t kTiledDim = 256;  // the widest head of `tiled` and in PTX: of one tile
inline constexpr std::int64_t kShortKeys = 80;  // that ptx_sm90a_short takes

}  // namespace noisefloor::attention
