// The launchers of ptx_sm90a, conv2d's and conv2d_dgrad's (its kernel: ptx_sm90a.cuh), and what they do before the
// launch where the input's channels are not a multiple of 8: TMA moves 16 bytes, so the product's rows (taps times
// channels, 27 for a 3x3 of RGB) are laid out in the workspace, padded to a multiple of 8, and the convolution becomes
// a 1x1 over them. `prepare` pads the weights once; a gradient's are there as its rows take them, which go over
// channels, then taps. Costs a pass over rows x k values, of which the first layers have few.
//
// Source: original.
#include "kernels/convolution/epilogue.cuh"
#include "kernels/convolution/gradient.h"
#include "kernels/convolution/ptx_sm90a.cuh"
#include "kernels/convolution/schedule.h"
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"

namespace noisefloor::convolution {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

// One thread per 8 columns of a row: [phase_rows][padded], zeros past k and outside of the image.
template <class T, bool kGradient>
__global__ void __launch_bounds__(kThreads)
    gather_rows(const T* __restrict__ x, T* __restrict__ rows, const __grid_constant__ Convolution c, int padded) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int chunks = padded / 8;
  if (item >= c.phase_rows() * chunks) return;
  const Pixel at = row_pixel(c, item / chunks);
  Run<T, 8> run{};
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const int k = static_cast<int>(item % chunks) * 8 + j;
    const int tap = kGradient ? c.y.taps * c.x.taps - 1 - k % (c.y.taps * c.x.taps) : k / c.cin;
    if (kGradient ? k >= c.k() : tap >= c.y.taps * c.x.taps) break;
    const int iy = input_coordinate(c.y, at.y, 0, tap / c.x.taps);
    const int ix = input_coordinate(c.x, at.x, 0, tap % c.x.taps);
    if (iy >= 0 && ix >= 0)
      run.v[j] =
          x[((at.image * c.y.in + iy) * c.x.in + ix) * c.cin + (kGradient ? k / (c.y.taps * c.x.taps) : k % c.cin)];
  }
  reinterpret_cast<Run<T, 8>*>(rows)[item] = run;
}

// Rows of `columns` weights, each padded with zeros.
template <class T>
__global__ void __launch_bounds__(kThreads)
    pad_rows(const T* __restrict__ w, T* __restrict__ padded_w, std::int64_t rows, int columns, int padded) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= rows * padded) return;
  const auto column = static_cast<int>(item % padded);
  padded_w[item] = column < columns ? w[item / padded * columns + column] : from_float<T>(0.0f);
}

}  // namespace

Status prepare_ptx_sm90a(const Convolution& c, DType dtype, const void* w, bool summed, void* prepared,
                         const LaunchContext& context) {
  if (summed) return sum_upsampled_weights(c.cin, c.cout, dtype, w, prepared, context);
  if (!gathers_rows(c)) return success();
  return with_half_type(dtype, [&]<class T>(T) {
    const int padded = gathered_columns(c);
    return launch_kernel(
        "pad_rows", pad_rows<T>, {.grid = blocks_for(std::int64_t{c.cout} * padded), .block = kThreads}, context.stream,
        static_cast<const T*>(w), static_cast<T*>(prepared), c.cout, static_cast<int>(c.weight_row()), padded);
  });
}

template <bool kGradient>
static Status gather(const Convolution& c, DType dtype, const void* x, void* workspace, const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    const int padded = gathered_columns(c);
    return launch_kernel("gather_rows", gather_rows<T, kGradient>,
                         {.grid = blocks_for(c.phase_rows() * (padded / 8)), .block = kThreads}, context.stream,
                         static_cast<const T*>(x), static_cast<T*>(workspace), c, padded);
  });
}

// Of channels that TMA can address.
static Status launch_product(const Convolution& c, DType dtype, const Operands& o, const LaunchContext& context) {
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const int sms = context.device->sm_count;
  const auto schedule = context.choice.empty() ? choose(c, sms) : im2col_model_of(c).parse(context.choice, sms);
  if (!schedule) return failure(StatusCode::invalid_argument, "convolution: no such schedule");
  const Status status = with_half_type(dtype, [&]<class T>(T) {
    return with_tile<kTiles.size()>(
        schedule->tile, [&]<int kTile>() { return launch_tile<T, kTile>(c, dtype, o, *schedule, context); });
  });
  return status.ok() && c.stats ? launch_statistics(c, dtype, o, context) : status;
}

Status launch_ptx_sm90a(const Convolution& c, DType dtype, const Operands& o, const Scratch& scratch,
                        const LaunchContext& context) {
  if (!gathers_rows(c)) return launch_product(c, dtype, o, context);
  if (scratch.workspace == nullptr || scratch.prepared == nullptr)
    return failure(StatusCode::invalid_argument, "convolution: no workspace, or weights not prepared");
  if (const Status gathered = gather<false>(c, dtype, o.x, scratch.workspace, context); !gathered.ok()) return gathered;
  Operands rows = o;
  rows.x = scratch.workspace;
  rows.w = scratch.prepared;
  return launch_product(gathered_product(c), dtype, rows, context);
}

// dgrad_ptx_sm90a.cu
Status launch_gradient(const Convolution& c, DType dtype, const GradientOperands& o, const Schedule& schedule,
                       const LaunchContext& context);

Status launch_dgrad_ptx_sm90a(const Convolution& forward, DType dtype, const Dgrad& tensors,
                              const DgradFactors& factors, void* workspace, const LaunchContext& caller) {
  auto [c, o] = gradient_launch(forward, 0, 0, tensors, factors);
  LaunchContext context = caller;
  if (const Status status = check_operands(c, o); !status.ok()) return status;
  const bool sums = forward.y.repeat == 2;
  if ((sums || gathers_rows(c)) && workspace == nullptr)
    return failure(StatusCode::invalid_argument, "convolution: no workspace");
  if (sums) {
    const Status summed = sum_gradient_weights(forward, dtype, o.w, workspace, context);
    if (!summed.ok()) return summed;
    o.w = workspace;
    context.constant_inputs = 0;  // they are not there before this launch's predecessor has ended
  } else if (gathers_rows(c)) {
    if (const Status gathered = gather<true>(c, dtype, o.x, workspace, context); !gathered.ok()) return gathered;
    o.x = workspace;
    o.w_rows = c.k();
    c = gathered_product(c);
  }
  const int sms = context.device->sm_count;
  const auto schedule = context.choice.empty() ? choose(c, sms) : im2col_model_of(c).parse(context.choice, sms);
  if (!schedule) return failure(StatusCode::invalid_argument, "convolution: no such schedule");
  return launch_gradient(c, dtype, o, *schedule, context);
}

}  // namespace noisefloor::convolution
