// The launchers behind variants.cpp, and the limits that can_run checks for them.
#pragma once

#include "kernels/device/grid.h"
#include "kernels/temporal_attention/temporal_attention.h"

namespace noisefloor::temporal_attention {

// Vector accesses need 16-byte aligned tensors.
inline Status check_pointers(const Tensors& tensors) {
  for (const void* pointer : {tensors.q, tensors.k, tensors.v, static_cast<const void*>(tensors.out)})
    if (pointer == nullptr || reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0)
      return failure(StatusCode::invalid_argument, "temporal_attention: a tensor is null or not 16-byte aligned");
  return success();
}

Launcher launch_host;

inline constexpr std::int64_t kNaiveRows = 8;  // queries of a block
Launcher launch_naive;

inline constexpr std::int64_t kTiledUnits = 4;  // sequences of a block
Launcher launch_tiled;

inline constexpr std::int64_t kSm80Units = 8;  // sequences of a block
Launcher launch_tensor_core_sm80;

Launcher launch_ptx_sm90a;

}  // namespace noisefloor::temporal_attention
