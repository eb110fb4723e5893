#include "kernels/convolution/gradient.h"

#include <algorithm>

#include "kernels/core/fields.h"
#include "kernels/core/tensor.h"
#include "kernels/device/limits.h"

namespace noisefloor::convolution {

void visit_gradient(Shape& s, FieldVisitor& visitor) {
  visit_shape(s, visitor);
  visitor.flag("column", "the kernel is kernel x 1, without zeros beside it; needs stride 1, no upsample", s.column,
               false);
}

void let_extents(TensorVisitor& visit) {
  visit.let("kernel_w", "kernel - (kernel - 1)*column");
  visit.let("out_h", "(h*(1 + upsample) + 2*pad - kernel)/stride + 1");
  visit.let("out_w", "(w*(1 + upsample) + 2*pad*(1 - column) - kernel_w)/stride + 1");
}

Convolution forward_of(const Shape& s) {
  const std::int64_t times = s.times();
  Convolution c = plain(s.n, times * s.h, times * s.w, s.cin, s.cout, static_cast<int>(s.kernel),
                        static_cast<int>(s.stride), static_cast<int>(s.pad));
  if (s.column) {
    c.x.out = c.x.in;
    c.x.taps = c.x.kernel_taps = 1;
    c.x.origin = 0;
  }
  for (Axis* const axis : {&c.y, &c.x}) {
    axis->repeat = static_cast<int>(times);
    axis->in /= axis->repeat;
  }
  return c;
}

namespace {

constexpr std::int64_t kThreads = 256;  // of naive variants

Support takes_elements(std::int64_t elements) {
  return elements <= kMaxBlocks * kThreads ? supported()
                                           : unsupported("needs at most 2^39 - 256 elements of a gradient");
}

}  // namespace

Support can_run_dgrad_naive(const Convolution& c, DType) {
  return takes_elements(c.input_elements());
}

Support can_run_dgrad_tiled(const Convolution& c, DType) {
  const std::int64_t tiles = (std::int64_t{c.images} * c.y.in * c.x.in / kTiledTile + 1) * (c.cin / kTiledTile + 1);
  return tiles <= kMaxBlocks ? supported() : unsupported("needs at most 2^31 - 1 tiles of 128x128");
}

Convolution tensor_core_gradient(const Convolution& forward, int phase_y, int phase_x) {
  Convolution c = gradient_of(forward, phase_y, phase_x);
  for (Axis* const axis : {&c.y, &c.x})
    if (forward.y.repeat == 2) axis->kernel_taps = axis->taps;
  return c;
}

std::size_t gradient_weight_bytes(const Convolution& forward, DType dtype) {
  return forward.y.repeat == 2 ? aligned(summed_weight_bytes(forward.cin, forward.cout, dtype)) : 0;
}

GradientLaunch gradient_launch(const Convolution& forward, int phase_y, int phase_x, const Dgrad& t,
                               const DgradFactors& factors) {
  GradientLaunch launch{tensor_core_gradient(forward, phase_y, phase_x), {}};
  Convolution& c = launch.c;
  c.residual = t.residual != nullptr;
  c.gain = factors.residual_scale;
  GradientOperands& o = launch.o;
  o.x = t.dy;
  o.w = t.w;
  o.residual = t.residual;
  o.y = t.dx;
  o.factor = factors.scale;
  o.w_rows = c.cin;
  o.step = gradient_phases(forward.y);
  o.first_y = phase_y;
  o.first_x = phase_x;
  o.height = forward.y.in;
  o.width = forward.x.in;
  return launch;
}

static Support takes_gradient(const Convolution& forward, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (forward.cin % 8 != 0) return unsupported("needs cin to be a multiple of 8: weights are read by 16 bytes");
  return supported();
}

// Calls body(gradient) on that of each phase that has pixels.
template <class Body>
static void each_gradient(const Convolution& forward, const Body& body) {
  for (int y = 0; y < gradient_phases(forward.y); ++y)
    for (int x = 0; x < gradient_phases(forward.x); ++x)
      if (const Convolution c = tensor_core_gradient(forward, y, x); c.rows() > 0) body(c);
}

static Support each_supports(const Convolution& forward, DType dtype, CanRun* can_run) {
  Support support = supported();
  each_gradient(forward, [&](const Convolution& c) {
    if (support) support = can_run(c, dtype);
  });
  return support;
}

Support can_run_dgrad_tensor_core_sm80(const Convolution& forward, DType dtype) {
  const Support support = takes_gradient(forward, dtype);
  return support ? each_supports(forward, dtype, can_run_tensor_core_sm80) : support;
}

std::size_t dgrad_tensor_core_sm80_workspace_bytes(const Convolution& forward, DType dtype, const DeviceInfo& device) {
  std::size_t most = 0;
  each_gradient(forward, [&](const Convolution& c) {
    most = std::max(most, tensor_core_sm80_workspace_bytes(c, dtype, device));
  });
  return gradient_weight_bytes(forward, dtype) + most;
}

Support can_run_dgrad_ptx_sm90a(const Convolution& forward, DType dtype) {
  if (const Support support = takes_gradient(forward, dtype); !support) return support;
  if (forward.y.stride != 1) return unsupported("needs stride 1");
  if (forward.cout % 8 != 0 && forward.y.repeat == 2)
    return unsupported("needs cout to be a multiple of 8 behind an upsample: TMA moves 16 bytes");
  return can_run_ptx_sm90a(tensor_core_gradient(forward, 0, 0), dtype);
}

std::size_t dgrad_ptx_sm90a_workspace_bytes(const Convolution& forward, DType dtype, const DeviceInfo& device) {
  return gradient_weight_bytes(forward, dtype) +
         ptx_sm90a_workspace_bytes(tensor_core_gradient(forward, 0, 0), dtype, device);
}

Support can_run_dgrad_ptx_sm90a_halo(const Convolution& forward, DType dtype) {
  if (const Support support = takes_gradient(forward, dtype); !support) return support;
  if (forward.y.repeat == 2) return unsupported("has no upsample, whose gradient has a stride of 2");
  if (forward.cout % 8 != 0) return unsupported("needs cout to be a multiple of 8: TMA moves 16 bytes");
  if (forward.y.stride == 2 && (forward.y.taps == 1 || forward.y.in % 2 != 0))
    return unsupported("needs, with stride 2, a kernel above 1 and an even height");
  return each_supports(forward, dtype, can_run_ptx_sm90a_halo);
}

Support can_run_dgrad_ptx_sm80_narrow(const Convolution& forward, DType dtype) {
  if (forward.y.stride != 1 || forward.y.repeat != 1) return unsupported("needs stride 1, and no upsample");
  if (forward.cout > kNarrowChannels) return unsupported("needs cout to be at most 32");
  return can_run_ptx_sm80_narrow(tensor_core_gradient(forward, 0, 0), dtype);
}

std::size_t dgrad_ptx_sm80_narrow_workspace_bytes(const Convolution& forward, DType dtype, const DeviceInfo&) {
  return narrow_weight_bytes(tensor_core_gradient(forward, 0, 0), dtype);
}

std::vector<Choice> dgrad_schedule_choices(const Convolution& forward, DType dtype, const DeviceInfo& device) {
  return schedule_choices(tensor_core_gradient(forward, 0, 0), dtype, device);
}

std::vector<Choice> dgrad_halo_choices(const Convolution& forward, DType dtype, const DeviceInfo& device) {
  if (forward.y.stride != 1) return {};  // each phase has its own
  return halo_choices(tensor_core_gradient(forward, 0, 0), dtype, device);
}

Support can_run_wgrad_naive(const Convolution& c, DType) {
  return takes_elements(c.cout * c.k());
}

Support can_run_wgrad_tiled(const Convolution& c, DType) {
  return wgrad_tiles(c) <= kMaxBlocks ? supported() : unsupported("needs at most 2^31 - 1 tiles of 128x128");
}

Support can_run_wgrad_tensor_core_sm80(const Convolution& c, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  // Lines behind the last pixel of a step are counted in 32 bits, too.
  if (c.phase_rows() + 256 >= kMaxBlocks) return unsupported("needs at most 2^31 - 257 pixels");
  return can_run_wgrad_tiled(c, dtype);
}

Support can_run_wgrad_ptx_sm90a(const Convolution& c, DType dtype) {
  if (dtype == DType::fp32) return unsupported("needs bf16 or fp16");
  if (c.y.stride != 1) return unsupported("needs stride 1");
  if (c.y.taps > 3 || c.x.taps != c.y.taps) return unsupported("needs a kernel of 1x1 or 3x3");
  if (c.y.taps == 1 && c.y.origin != 0) return unsupported("needs a kernel of 1x1 to have no pad");
  // 2^31 also bounds the tiles of 64 x 64, the rows that are laid out, and a pixel's coordinate.
  if (c.phase_rows() >= kMaxBlocks || std::int64_t{c.images} * c.y.in * c.y.repeat * c.x.in * c.x.repeat >= kMaxBlocks)
    return unsupported("needs fewer than 2^31 - 1 pixels");
  if (std::int64_t{c.x.in} * c.x.repeat * c.cin >= kMaxBlocks)
    return unsupported("needs rows of fewer than 2^31 - 1 elements");
  return supported();
}

// Two blocks an SM, each with pixels enough to be worth its partial sums.
int wgrad_parts(const Convolution& c, const DeviceInfo& device) {
  constexpr std::int64_t kFewestPixels = 256;
  const std::int64_t wanted = 2 * std::max(1, device.sm_count) / wgrad_tiles(c);
  return static_cast<int>(std::max<std::int64_t>(1, std::min(wanted, c.phase_rows() / kFewestPixels)));
}

WgradParts wgrad_parts_of(const Convolution& c, const Wgrad& t, int step, void* workspace, const DeviceInfo& device) {
  const int parts = wgrad_parts(c, device);
  const std::int64_t steps = ((c.phase_rows() + parts - 1) / parts + step - 1) / step;
  const std::size_t sums_bytes = wgrad_channel_sums_bytes(c, t.dbias != nullptr);
  return {parts, steps * step,
          parts == 1 ? t.dw : reinterpret_cast<float*>(static_cast<char*>(workspace) + sums_bytes)};
}

std::size_t wgrad_channel_sums_bytes(const Convolution& c, bool dbias) {
  return dbias ? aligned(static_cast<std::size_t>(c.images) * static_cast<std::size_t>(c.cout) * sizeof(float)) : 0;
}

std::size_t wgrad_parts_bytes(const Convolution& c, const DeviceInfo& device) {
  const int parts = wgrad_parts(c, device);
  return parts == 1 ? 0 : static_cast<std::size_t>(parts * c.cout * c.k()) * sizeof(float);
}

}  // namespace noisefloor::convolution
