// The second launch of grad_norm on a device: the blocks' sums, in a fixed order, to norm and scale.
#pragma once

#include "kernels/device/block_sum.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/grad_norm/grad_norm.h"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::grad_norm {

inline constexpr int kThreads = 256;

static __global__ void __launch_bounds__(kThreads)
    norm_kernel(const float* sums, int count, float clip, float* norm, float* scale) {
  __shared__ float shared[kThreads];
  ptx::griddepcontrol_wait();
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += sums[i];
  sum = block_sum<kThreads>(sum, shared);
  if (threadIdx.x != 0) return;
  *norm = sqrtf(sum);
  *scale = scale_of(sqrtf(sum), clip);
}

inline Status launch_norm(const Problem& p, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  return launch_kernel("grad_norm norm_kernel", norm_kernel,
                       {.block = kThreads, .programmatic = context.programmatic_launch}, context.stream,
                       static_cast<const float*>(scratch.workspace), static_cast<int>(partial_sums(p)),
                       static_cast<float>(p.clip), t.norm, t.scale);
}

}  // namespace noisefloor::grad_norm
