// gemm, tensor cores from sm_80: mma.sync m16n8k16, fed by a pipeline of asynchronous copies.
//
// Better than tensor_core_sm75: cp.async fills three or four stages of shared memory without passing through registers,
// each product is twice as deep, and the tile is chosen by shape (product/sm80_plan.cpp), down to a flat one for few
// rows, with k split between blocks where tiles are few. Where k is split, every part leaves fp32 sums in the workspace
// and a second kernel adds them in order.
//
// Requires: bf16 or fp16, rows of A and B of whole 16-byte chunks.
// Bound: tensor pipe at 4096^3; expected limiter: mma.sync's issue rate on sm_90, where only wgmma reaches the peak.
// Numerics: fp32 sums in the tensor core, in order of k, then parts in order: deterministic.
// Source: PTX ISA (mma, ldmatrix, cp.async); the pipeline's order after CUTLASS's multistage mainloop.
#include "kernels/gemm/tensor_core_sm80.cuh"

namespace noisefloor::gemm {

Status launch_tensor_core_sm80(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                               const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  const Sm80Plan plan = choose_sm80_plan(problem, *context.device);
  auto* partials = plan.splits > 1 ? static_cast<float*>(scratch.workspace) : nullptr;
  if (problem.layout != Layout::nt) return launch_sm80_gradient(problem, dtype, tensors, plan, partials, context);
  return launch_layout<Layout::nt>(problem, dtype, tensors, plan, partials, context);
}

}  // namespace noisefloor::gemm
