// layernorm_backward, naive: one block per row, four passes over it in memory: mean; variance and the mean of dh; that
// of dh xh; dx. Then one thread per image and channel adds the image's rows, and one per channel the images.
//
// Threads: 128. Shared memory: one float per thread for the sums.
//
// Bound: memory, by 2- to 4-byte accesses, each row read five times (from L1 or L2 after the first); the sums over rows
// have as many threads as there are channels of images, which is few for one image.
//
// Requires: nothing. Workspace, fp32: mean and rstd [rows], sums [images, 2, channels].
// Numerics: fp32; deviations from the mean are squared; all sums in fixed order.
// Source: original.
#include "kernels/device/block_sum.cuh"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/norm_gradients.cuh"
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kRun = 256;  // rows that are added by themselves: a plain sum of 2^16 is off by 2^8 roundings

template <class T>
__global__ void __launch_bounds__(kThreads)
    naive_kernel(const Problem p, const Tensors t, float* means, float* rstds, float residual_scale) {
  __shared__ float shared[kThreads];
  const std::int64_t first = blockIdx.x * p.channels;
  const std::int64_t image = blockIdx.x / (p.rows / p.images) * p.channels;
  const T *x = static_cast<const T*>(t.x) + first, *dy = static_cast<const T*>(t.dy) + first;
  const auto length = static_cast<float>(p.channels);
  const auto dh_at = [&](std::int64_t c) {
    return to_float(dy[c]) * parameter<T>(t.gamma, c, 1.0f) * (1.0f + parameter<T>(t.scale, image + c, 0.0f));
  };

  float sum = 0, squares = 0, dh = 0, dh_xh = 0;
  for (std::int64_t c = threadIdx.x; c < p.channels; c += kThreads) sum += to_float(x[c]);
  const float mean = block_sum<kThreads>(sum, shared) / length;
  for (std::int64_t c = threadIdx.x; c < p.channels; c += kThreads) {
    const float deviation = to_float(x[c]) - mean;
    squares += deviation * deviation;
    dh += dh_at(c);
  }
  const float variance = block_sum<kThreads>(squares, shared) / length;
  const float mean_dh = block_sum<kThreads>(dh, shared) / length;
  const float rstd = 1.0f / sqrtf(variance + static_cast<float>(p.eps));
  for (std::int64_t c = threadIdx.x; c < p.channels; c += kThreads) dh_xh += dh_at(c) * (to_float(x[c]) - mean) * rstd;
  const float mean_dh_xh = block_sum<kThreads>(dh_xh, shared) / length;
  for (std::int64_t c = threadIdx.x; c < p.channels; c += kThreads) {
    const float xh = (to_float(x[c]) - mean) * rstd;
    float dx = rstd * (dh_at(c) - mean_dh - xh * mean_dh_xh);
    if (t.residual != nullptr) dx += residual_scale * to_float(static_cast<const T*>(t.residual)[first + c]);
    static_cast<T*>(t.dx)[first + c] = from_float<T>(dx);
  }
  if (threadIdx.x == 0) {
    means[blockIdx.x] = mean;
    rstds[blockIdx.x] = rstd;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    sums_kernel(const Problem p, const Tensors t, const float* means, const float* rstds, float* sums) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= p.images * p.channels) return;
  const std::int64_t image = i / p.channels, c = i % p.channels, rows = p.rows / p.images, end = (image + 1) * rows;
  float sum = 0, sum_xh = 0;
  for (std::int64_t first = image * rows; first < end; first += kRun) {
    float part = 0, part_xh = 0;
    for (std::int64_t row = first; row < min(first + kRun, end); ++row) {
      const float dy = to_float(static_cast<const T*>(t.dy)[row * p.channels + c]);
      part += dy;
      part_xh += dy * (to_float(static_cast<const T*>(t.x)[row * p.channels + c]) - means[row]) * rstds[row];
    }
    sum += part;
    sum_xh += part_xh;
  }
  store_sums<T>({t.gamma, t.beta, t.scale, t.dscale, t.dshift, p.channels, p.channels}, image, c, sum, sum_xh, sums);
}

}  // namespace

std::size_t naive_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(2 * p.rows + (p.sums() ? p.images * 2 * p.channels : 0)) * sizeof(float);
}

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch,
                    const LaunchContext& context) {
  auto* const means = static_cast<float*>(scratch.workspace);
  float *const rstds = means + p.rows, *const sums = rstds + p.rows;
  const Status status = with_type(dtype, [&]<class T>(T) {
    const Status rows = launch_kernel("layernorm_backward naive_kernel", naive_kernel<T>,
                                      {.grid = static_cast<unsigned>(p.rows), .block = kThreads}, context.stream, p, t,
                                      means, rstds, static_cast<float>(p.residual_scale));
    if (!rows.ok() || !p.sums()) return rows;
    const auto blocks = static_cast<unsigned>((p.images * p.channels + kThreads - 1) / kThreads);  // at most 2^29
    return launch_kernel("layernorm_backward sums_kernel", sums_kernel<T>, {.grid = blocks, .block = kThreads},
                         context.stream, p, t, means, rstds, sums);
  });
  return launch_parameters(status, "layernorm_backward parameters_kernel", p.images, p.channels, sums, t.dgamma,
                           t.dbeta, context);
}

}  // namespace noisefloor::layernorm_backward
