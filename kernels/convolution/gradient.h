// The gradients of a convolution by its input (dgrad) and by its weights (wgrad): what conv2d_dgrad and conv2d_wgrad
// share. Both are told of the forward convolution, in one phase: an upsample is `repeat` of its axes.
//
// dgrad is itself a convolution, of dy: along an axis of stride 1 with flipped taps; of stride 2 one per parity of the
// pixel (its phase), each with the taps that meet there; behind an upsample one of stride 2, whose taps sum those that
// read the same pixel of dy for a pair of pixels of u. Its sums run over output channels.
// wgrad is a matrix product that sums over pixels: dy[pixel, cout]^T times patches[pixel, taps * cin].
#pragma once

#include "kernels/convolution/convolution.h"

namespace noisefloor::convolution {

// The fields and derived extents of a gradient's problem, out_h, out_w and kernel_w.
void visit_gradient(Shape& shape, FieldVisitor& visitor);
void let_extents(TensorVisitor& visit);
// The forward convolution, in one phase; and what a function says of it, as one of an op's problem.
Convolution forward_of(const Shape& shape);
template <auto function, class Problem, class... Rest>
auto of_forward(const Problem& problem, Rest... rest) {
  return function(forward_of(problem), rest...);
}
// Whether the convolution is a product of pixels, which gemm takes.
inline Support takes_pointwise(const Shape& s) {
  return s.kernel == 1 && s.stride == 1 && s.pad == 0 ? supported() : unsupported("needs kernel=1, stride=1 and pad=0");
}

// Along an axis of stride s pixels fall into s phases: pixel o * s + p is number o of phase p.
constexpr int gradient_phases(const Axis& forward) {
  return forward.stride;
}
// dgrad of phase `phase`, as an axis of one phase. A tap of it is a tap of the kernel, but behind an upsample.
constexpr Axis gradient_axis(const Axis& forward, int phase) {
  const int s = forward.stride, pad = -forward.origin;
  Axis axis;
  axis.in = forward.out;
  axis.kernel_taps = forward.taps;
  if (forward.repeat == 2) {
    axis.out = forward.in;
    axis.taps = forward.taps + 1;
    axis.stride = 2;
    axis.origin = pad - (forward.taps - 1);
    return axis;
  }
  const int first = (phase + pad) % s;  // dy of pixel (phase + pad - tap) / s
  axis.out = (forward.in - phase + s - 1) / s;
  axis.taps = (forward.taps - first + s - 1) / s;
  axis.origin = (phase + pad - first) / s - (axis.taps - 1);
  axis.first_tap = first + s * (axis.taps - 1);
  axis.tap_step = -s;
  return axis;
}
// The taps of the kernel that tap `tap` of it sums.
constexpr TapRange gradient_taps(const Axis& forward, const Axis& axis, int tap) {
  if (forward.repeat == 1) return {axis.first_tap + tap * axis.tap_step, axis.first_tap + tap * axis.tap_step};
  const int last = forward.taps - tap;
  return {last > 0 ? last - 1 : 0, last < forward.taps ? last : forward.taps - 1};
}

// dgrad of one phase: a convolution of dy whose output channels are input channels. Its `act`, epilogue and weights are
// not what Convolution says.
constexpr Convolution gradient_of(const Convolution& forward, int phase_y, int phase_x) {
  Convolution c;
  c.images = forward.images;
  c.cin = forward.cout;
  c.cout = forward.cin;
  c.y = gradient_axis(forward.y, phase_y);
  c.x = gradient_axis(forward.x, phase_x);
  c.n_major = true;
  return c;
}
// The pixel of dx, counted over all images, of a row of it.
constexpr std::int64_t gradient_pixel(const Convolution& forward, int phase_y, int phase_x, const Pixel& at) {
  const std::int64_t y = std::int64_t{at.y} * gradient_phases(forward.y) + phase_y;
  return (at.image * forward.y.in + y) * forward.x.in + std::int64_t{at.x} * gradient_phases(forward.x) + phase_x;
}

// Pointers as of Operands, all of the dtype of the launch unless said otherwise.
//   dx = scale * sum + residual_scale * residual
struct Dgrad {
  const void* dy = nullptr;        // [images, out_h, out_w, cout]
  const void* w = nullptr;         // [cout, taps y, taps x, cin]
  const void* residual = nullptr;  // as dx, or null
  void* dx = nullptr;              // [images, h, w, cin]
};
struct DgradFactors {
  float scale = 1, residual_scale = 1;
};
struct Wgrad {
  const void* x = nullptr;   // [images, h, w, cin]
  const void* dy = nullptr;  // [images, out_h, out_w, cout]
  float* dw = nullptr;       // fp32 [cout, taps y, taps x, cin]
  float* dbias = nullptr;    // fp32 [cout], or null
  void* dshift = nullptr;    // [images, cout]: the sums over an image, or null
};

using DgradLauncher = Status(const Convolution& forward, DType, const Dgrad&, const DgradFactors&, void* workspace,
                             const LaunchContext&);
DgradLauncher launch_dgrad_host, launch_dgrad_naive, launch_dgrad_tiled, launch_dgrad_tensor_core_sm80,
    launch_dgrad_ptx_sm90a, launch_dgrad_ptx_sm90a_halo;
// Takes a residual whose factor is the gradient's; each launch first orders the weights in its workspace.
DgradLauncher launch_dgrad_ptx_sm80_narrow;

// dgrad on tensor cores: gradient_of() with n-major weights as its `w`, which the variants read as they are stored. But
// behind an upsample (forward.y.repeat 2): there they read [cout, 4, 4, cin], the sums of the taps that meet, which
// each launch makes first in its workspace.
Convolution tensor_core_gradient(const Convolution& forward, int phase_y, int phase_x);
std::size_t gradient_weight_bytes(const Convolution& forward, DType dtype);  // of those sums; 0 without an upsample
Status sum_gradient_weights(const Convolution& forward, DType dtype, const void* w, void* summed,
                            const LaunchContext& context);
struct GradientLaunch {
  Convolution c;
  GradientOperands o;
};
GradientLaunch gradient_launch(const Convolution& forward, int phase_y, int phase_x, const Dgrad& tensors,
                               const DgradFactors& factors);

using WgradLauncher = Status(const Convolution& forward, DType, const Wgrad&, float scale, void* workspace,
                             const LaunchContext&);
WgradLauncher launch_wgrad_host, launch_wgrad_naive, launch_wgrad_tiled, launch_wgrad_tensor_core_sm80,
    launch_wgrad_ptx_sm90a;

// What the variants on GPUs take: one thread an element, or a block a tile of 128 x 128.
CanRun can_run_dgrad_naive, can_run_dgrad_tiled, can_run_wgrad_naive, can_run_wgrad_tiled;
// On tensor cores; all of the forward convolution.
CanRun can_run_dgrad_tensor_core_sm80, can_run_dgrad_ptx_sm90a, can_run_dgrad_ptx_sm90a_halo,
    can_run_dgrad_ptx_sm80_narrow;
WorkspaceBytes dgrad_tensor_core_sm80_workspace_bytes, dgrad_ptx_sm90a_workspace_bytes,
    dgrad_ptx_sm80_narrow_workspace_bytes;
WorkspaceBytes dgrad_host_workspace_bytes, wgrad_host_workspace_bytes;
ListChoices dgrad_schedule_choices, dgrad_halo_choices;
CanRun can_run_wgrad_tensor_core_sm80, can_run_wgrad_ptx_sm90a;

// How tiled and tensor_core_sm80 fall into tiles, and into parts of the pixels, whose sums are added in their order.
constexpr std::int64_t wgrad_tiles(const Convolution& forward) {
  return ((forward.cout + kTiledTile - 1) / kTiledTile) * ((forward.k() + kTiledTile - 1) / kTiledTile);
}
struct WgradParts {
  int parts = 1;
  std::int64_t pixels = 0;  // of a part but the last, a multiple of a step's
  float* sums = nullptr;    // [parts][cout][k], dw itself if there is one
};
int wgrad_parts(const Convolution& forward, const DeviceInfo& device);
WgradParts wgrad_parts_of(const Convolution& forward, const Wgrad& tensors, int step, void* workspace,
                          const DeviceInfo& device);
// Workspace: fp32 sums of dy over each image [images, cout], where dbias is asked for; behind them the parts' sums.
std::size_t wgrad_channel_sums_bytes(const Convolution& forward, bool dbias);
std::size_t wgrad_parts_bytes(const Convolution& forward, const DeviceInfo& device);
// Behind the launch that made the parts' sums: adds them, and dy for the biases.
Status finish_wgrad(const Convolution& forward, DType dtype, const Wgrad& tensors, float scale, const WgradParts& parts,
                    void* workspace, const LaunchContext& context);
// dbias and dshift, where they are asked for, by two small launches.
Status launch_channel_sums(const Convolution& forward, DType dtype, const Wgrad& tensors, float scale, void* sums,
                           const LaunchContext& context);

}  // namespace noisefloor::convolution
