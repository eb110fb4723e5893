// The weights of four-phase upsampling: each of the four phases' 2x2 kernels sums the taps of the 3x3 kernel that fall
// on the same pixel of the small image. Runs once per weight (`prepare`), not in the timed launch. Its gradient's 4x4
// taps are the same sums in another order; they are made anew by each launch.
//
// One thread per sum; fp32, rounded once. Source: original.
#include "kernels/convolution/epilogue.cuh"
#include "kernels/convolution/gradient.h"
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kThreads = 256;

template <class T, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    sum_weights(const T* __restrict__ w, T* __restrict__ summed, std::int64_t cin, std::int64_t cout) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= 16 * cin * cout) return;
  const std::int64_t channel = item % cin;
  std::int64_t out;
  TapRange ys, xs;
  if constexpr (kGradient) {  // [cout][4][4][cin]: along an axis tap 1 of both phases, odd first, then tap 0
    const auto tap = static_cast<int>(item / cin % 16);
    out = item / cin / 16;
    ys = summed_taps(1 - tap / 4 % 2, 1 - tap / 8);
    xs = summed_taps(1 - tap % 2, 1 - tap % 4 / 2);
  } else {
    const auto tap = static_cast<int>(item / cin % 4);
    out = item / cin / 4 % cout;
    const auto phase = static_cast<int>(item / cin / 4 / cout);
    ys = summed_taps(phase / 2, tap / 2);
    xs = summed_taps(phase % 2, tap % 2);
  }
  float sum = 0;
  for (int ky = ys.first; ky <= ys.last; ++ky)
    for (int kx = xs.first; kx <= xs.last; ++kx) sum += to_float(w[((out * 3 + ky) * 3 + kx) * cin + channel]);
  summed[item] = from_float<T>(sum);
}

template <bool kGradient>
Status launch_sums(std::int64_t cin, std::int64_t cout, DType dtype, const void* w, void* summed,
                   const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>((16 * cin * cout + kThreads - 1) / kThreads);
    return launch_kernel("sum_weights", sum_weights<T, kGradient>, {.grid = blocks, .block = kThreads}, context.stream,
                         static_cast<const T*>(w), static_cast<T*>(summed), cin, cout);
  });
}

}  // namespace

Status sum_upsampled_weights(std::int64_t cin, std::int64_t cout, DType dtype, const void* w, void* summed,
                             const LaunchContext& context) {
  return launch_sums<false>(cin, cout, dtype, w, summed, context);
}

Status sum_gradient_weights(const Convolution& forward, DType dtype, const void* w, void* summed,
                            const LaunchContext& context) {
  return launch_sums<true>(forward.cin, forward.cout, dtype, w, summed, context);
}

}  // namespace noisefloor::convolution
