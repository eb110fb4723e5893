// The launchers behind variants.cpp, each in the file of its name, and the limits that can_run checks for them.
#pragma once

#include "kernels/attention/attention.h"
#include "kernels/device/grid.h"

namespace noisefloor::attention {

// Vector accesses need 16-byte aligned tensors; a tensor that the problem has must not be null.
inline Status check_pointers(const Problem& problem, const Tensors& tensors) {
  const auto bad = [](const void* pointer) {
    return pointer == nullptr || reinterpret_cast<std::uintptr_t>(pointer) % 16 != 0;
  };
  if (bad(tensors.q) || bad(tensors.k) || bad(tensors.v) || bad(tensors.out) || (problem.lse && bad(tensors.lse)))
    return failure(StatusCode::invalid_argument, "attention: a tensor is null or not 16-byte aligned");
  return success();
}

Launcher launch_host;

inline constexpr std::int64_t kNaiveRows = 8;  // queries of a block
Launcher launch_naive;

Launcher launch_tiled;

Launcher launch_tensor_core_sm80;

Launcher launch_ptx_sm90a;

inline constexpr std::int64_t kShortKeys = 80;  // that ptx_sm90a_short takes
Launcher launch_ptx_short_sm90a;

}  // namespace noisefloor::attention
