// tensor_core_sm80's kernels of layouts nn and tn: a file of their own, compiled beside those of layout nt.
#include "kernels/gemm/tensor_core_sm80.cuh"

namespace noisefloor::gemm {

Status launch_sm80_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Sm80Plan& plan,
                            float* partials, const LaunchContext& context) {
  return problem.layout == Layout::nn ? launch_layout<Layout::nn>(problem, dtype, tensors, plan, partials, context)
                                      : launch_layout<Layout::tn>(problem, dtype, tensors, plan, partials, context);
}

}  // namespace noisefloor::gemm
