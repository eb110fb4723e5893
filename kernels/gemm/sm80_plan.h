// The sm_80 rung's plan of a gemm.
#pragma once

#include "kernels/gemm/gemm.h"
#include "kernels/product/sm80_plan.h"

namespace noisefloor::gemm {

using product::Sm80Plan;
using product::Sm80Shape;
using product::Sm80Tile;

inline product::Extents extents(const Problem& problem) {
  return {problem.m, problem.n, problem.k, problem.gated()};
}
inline Sm80Plan choose_sm80_plan(const Problem& problem, const DeviceInfo& device) {
  return product::choose_sm80_plan(extents(problem), device);
}

// Launches a given plan; `workspace` holds sm80_workspace_bytes(plan). For tuning; the rung itself chooses.
Status launch_sm80_plan(const Problem& problem, DType dtype, const Tensors& tensors, const Sm80Plan& plan,
                        void* workspace, const LaunchContext& context);

}  // namespace noisefloor::gemm
