// The launchers behind variants.cpp, and the limits that can_run checks for them.
#pragma once

#include "kernels/device/limits.h"
#include "kernels/temporal_attention/temporal_attention.h"

namespace noisefloor::temporal_attention {

// Vector accesses need 16-byte aligned tensors.
Status check_pointers(const Tensors& tensors);

Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;
inline constexpr std::int64_t kNaiveRows = 8;   // queries of a block of `naive`
inline constexpr std::int64_t kTiledUnits = 4;  // sequences of a block of `tiled`
inline constexpr std::int64_t kSm80Units = 8;   // and of tensor_core_sm80

}  // namespace noisefloor::temporal_attention
