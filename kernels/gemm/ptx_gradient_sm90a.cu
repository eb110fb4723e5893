// ptx_sm90a's kernels of layouts nn and tn: a file of their own, compiled beside those of layout nt.
#include "kernels/gemm/ptx_sm90a_launch.cuh"

namespace noisefloor::gemm {

Status launch_ptx_gradient(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                           const Scratch& scratch, const LaunchContext& context) {
  if (problem.layout == Layout::nn) return launch_schedule<Layout::nn>(problem, dtype, tensors, schedule, context);
  const int parts = k_parts(problem, context.device->sm_count);
  if (parts == 1) return launch_schedule<Layout::tn>(problem, dtype, tensors, schedule, context);
  auto* const sums = static_cast<float*>(scratch.workspace);
  if (sums == nullptr) return failure(StatusCode::invalid_argument, "gemm: no workspace");
  const std::int64_t outputs = problem.m * problem.n;
  Tensors to_parts = tensors;
  to_parts.d = sums;
  if (problem.row_sums) to_parts.row_sums = sums + parts * outputs;
  const Status status = launch_schedule<Layout::tn>(problem, dtype, to_parts, schedule, context, parts);
  if (!status.ok()) return status;
  constexpr int kThreads = 256, kSums = 4;
  const std::int64_t items = (outputs + problem.m) / kSums;
  const LaunchShape shape{
      .grid = static_cast<unsigned>((items + kThreads - 1) / kThreads), .block = kThreads, .programmatic = true};
  return launch_kernel("gemm_ptx_add_parts", gemm_ptx_add_parts<kSums>, shape, context.stream, sums, parts, outputs,
                       static_cast<int>(problem.m), static_cast<float*>(tensors.d), tensors.row_sums);
}

}  // namespace noisefloor::gemm
