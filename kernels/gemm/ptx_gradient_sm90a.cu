// ptx_sm90a's kernels of layouts nn and tn: a file of their own, compiled beside those of layout nt.
#include "kernels/gemm/ptx_sm90a_launch.cuh"
#include "kernels/product/add_parts.cuh"

namespace noisefloor::gemm {

Status launch_ptx_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                           const Scratch& scratch, const LaunchContext& context) {
  if (problem.layout == Layout::nn) return launch_schedule<Layout::nn>(problem, dtype, tensors, schedule, context);
  const int parts = k_parts(problem, context.device->sm_count);
  auto* const sums = static_cast<float*>(scratch.workspace);
  return product::launch_in_parts(sums, parts, problem.m * problem.n, problem.m, static_cast<float*>(tensors.d),
                                  tensors.row_sums, context, [&](float* d, float* row_sums) {
                                    Tensors to = tensors;
                                    to.d = d, to.row_sums = row_sums;
                                    return launch_schedule<Layout::tn>(problem, dtype, to, schedule, context, parts);
                                  });
}

}  // namespace noisefloor::gemm
