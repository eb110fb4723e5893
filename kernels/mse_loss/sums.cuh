// The second launch of mse_loss on a device: the blocks' sums, in a fixed order.
#pragma once

#include "kernels/device/block_sum.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/mse_loss/mse_loss.h"
#include "kernels/ptx/griddepcontrol.cuh"

namespace noisefloor::mse_loss {

inline constexpr int kThreads = 256;

static __global__ void __launch_bounds__(kThreads)
    mean_kernel(const float* sums, int count, double total, float* loss) {
  __shared__ float shared[kThreads];
  ptx::griddepcontrol_wait();
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += sums[i];
  sum = block_sum<kThreads>(sum, shared);
  if (threadIdx.x == 0) *loss = static_cast<float>(sum / total);
}

inline Status launch_mean(const Problem& p, const Tensors& t, const Scratch& scratch, const LaunchContext& context) {
  return launch_kernel("mse_loss mean_kernel", mean_kernel,
                       {.block = kThreads, .programmatic = context.programmatic_launch}, context.stream,
                       static_cast<const float*>(scratch.workspace), static_cast<int>(partial_sums(p)),
                       static_cast<double>(p.total()), t.loss);
}

// What dy's factor is made of, but an image's weight.
inline float slope_of(const Problem& p) {
  return static_cast<float>(p.scale * 2 / static_cast<double>(p.total()));
}

}  // namespace noisefloor::mse_loss
