// ptx_sm90a's kernels of layouts nn and tn: a file of their own, compiled beside those of layout nt.
#include "kernels/gemm/ptx_sm90a_launch.cuh"

namespace noisefloor::gemm {

Status launch_ptx_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                           const LaunchContext& context) {
  return problem.layout == Layout::nn ? launch_schedule<Layout::nn>(problem, dtype, tensors, schedule, context)
                                      : launch_schedule<Layout::tn>(problem, dtype, tensors, schedule, context);
}

}  // namespace noisefloor::gemm
