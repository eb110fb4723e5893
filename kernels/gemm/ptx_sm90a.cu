// The launcher of ptx_sm90a (its kernel: ptx_sm90a.cuh).
#include "kernels/gemm/ptx_sm90a_launch.cuh"

namespace noisefloor::gemm {

Status launch_ptx_sm90a(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch& scratch,
                        const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  const int sms = context.device->sm_count;
  const auto schedule = context.choice.empty() ? choose(problem, sms) : parse_choice(problem, context.choice, sms);
  if (!schedule) return failure(StatusCode::invalid_argument, "gemm: no such schedule");
  if (problem.layout != Layout::nt) return launch_ptx_gradient(problem, dtype, tensors, *schedule, scratch, context);
  return launch_schedule<Layout::nt>(problem, dtype, tensors, *schedule, context);
}

}  // namespace noisefloor::gemm
