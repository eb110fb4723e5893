// tensor_core_sm80's kernels of layouts nn and tn: a file of their own, compiled beside those of layout nt.
#include "kernels/gemm/tensor_core_sm80.cuh"
#include "kernels/product/add_parts.cuh"

namespace noisefloor::gemm {

Status launch_sm80_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Sm80Plan& plan,
                            float* partials, const LaunchContext& context) {
  if (problem.layout == Layout::nn) return launch_layout<Layout::nn>(problem, dtype, tensors, plan, partials, context);
  return product::launch_in_parts(partials, plan.splits, problem.m * problem.n, problem.m,
                                  static_cast<float*>(tensors.d), tensors.row_sums, context,
                                  [&](float* d, float* row_sums) {
                                    Tensors to = tensors;
                                    to.d = d, to.row_sums = row_sums;
                                    return launch_layout<Layout::tn>(problem, dtype, to, plan, partials, context);
                                  });
}

}  // namespace noisefloor::gemm
