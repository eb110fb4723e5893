// The definition, written down: one block per (image, group), passes over the group in memory: the two sums of each
// channel, dx. Then one thread per channel adds the images' sums.
//
// Threads: 256; in the passes over the group thread i takes elements i, i + 256, ..., counted along channels, then
// rows; in the sums of a channel pixels. Shared memory: one float per thread.
//
// Bound: memory, and far from it: most of every 32-byte sector is wasted, x and dy are read twice, and the sums of a
// channel are two block reductions each.
//
// Requires: nothing. Workspace: sums [n, 2, channels], fp32.
// Numerics: fp32; all sums in fixed order.
// Source: original.
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/groupnorm_backward/device.cuh"

namespace noisefloor::groupnorm_backward {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) naive_kernel(Problem p, Tensors t, float* sums, float residual_scale) {
  __shared__ float shared[kThreads];
  const std::int64_t image = blockIdx.x / p.groups, group = blockIdx.x % p.groups;
  const std::int64_t width = p.channels / p.groups, size = p.hw * width;
  const std::int64_t first = image * p.hw * p.channels + group * width;
  const T *x = static_cast<const T*>(t.x), *dy = static_cast<const T*>(t.dy);
  const auto place = [&](std::int64_t i) { return first + i / width * p.channels + i % width; };

  const float mean = t.mean[blockIdx.x], rstd = t.rstd[blockIdx.x];
  float mean_dh = 0, mean_dh_xh = 0;
  for (std::int64_t c = group * width; c < (group + 1) * width; ++c) {
    const Channel channel = channel_of<T>(p, t, mean, rstd, image, c);
    float of_dv = 0, of_dv_xh = 0;
    for (std::int64_t s = threadIdx.x; s < p.hw; s += kThreads) {
      float xh = to_float(x[(image * p.hw + s) * p.channels + c]);
      float dv = to_float(dy[(image * p.hw + s) * p.channels + c]);
      to_xh_and_dv(p, channel, xh, dv);
      of_dv += dv;
      of_dv_xh += dv * xh;
    }
    of_dv = block_sum<kThreads>(of_dv, shared);
    of_dv_xh = block_sum<kThreads>(of_dv_xh, shared);
    mean_dh += channel.a * of_dv / static_cast<float>(size);
    mean_dh_xh += channel.a * of_dv_xh / static_cast<float>(size);
    if (threadIdx.x == 0) store_sums<T>(gradients_of(p, t), image, c, of_dv, of_dv_xh, sums);
  }

  for (std::int64_t i = threadIdx.x; i < size; i += kThreads) {
    const Channel channel = channel_of<T>(p, t, mean, rstd, image, group * width + i % width);
    float xh = to_float(x[place(i)]), dv = to_float(dy[place(i)]);
    to_xh_and_dv(p, channel, xh, dv);
    float dx = rstd * (channel.a * dv - mean_dh - xh * mean_dh_xh);
    if (t.residual != nullptr) dx += residual_scale * to_float(static_cast<const T*>(t.residual)[place(i)]);
    static_cast<T*>(t.dx)[place(i)] = from_float<T>(dx);
  }
}

}  // namespace

std::size_t naive_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(p.n * 2 * p.channels) * sizeof(float);
}

Status launch_naive(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                    const LaunchContext& context) {
  auto* const sums = static_cast<float*>(scratch.workspace);
  const Tensors t = unpacked(p, dtype, tensors);
  const Status status = with_type(dtype, [&]<class T>(T) {
    return launch_kernel("groupnorm_backward naive_kernel", naive_kernel<T>,
                         {.grid = static_cast<unsigned>(p.n * p.groups), .block = kThreads}, context.stream, p, t, sums,
                         static_cast<float>(p.residual_scale));
  });
  return launch_parameters(status, "groupnorm_backward parameters_kernel", p.n, p.channels, sums, t.dgamma, t.dbeta,
                           context);
}

}  // namespace noisefloor::groupnorm_backward
