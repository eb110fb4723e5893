#include "kernels/convolution/gradient.h"

#include <algorithm>
#include <string>

#include "kernels/core/fields.h"
#include "kernels/device/limits.h"

namespace noisefloor::convolution {

constexpr std::int64_t kMaxKernel = 31;

double Shape::flops() const {
  const std::int64_t met = upsample ? 4 : taps();
  return 2.0 * static_cast<double>(out_pixels()) * static_cast<double>(cout * met * cin);
}

void visit_shape(Shape& s, FieldVisitor& visitor) {
  visitor.integer("n", "images", s.n, 1, 32767);
  visitor.integer("h", "height of x in pixels", s.h, 1, 1 << 20);
  visitor.integer("w", "width of x in pixels", s.w, 1, 1 << 20);
  visitor.integer("cin", "channels of x", s.cin, 1, 65536);
  visitor.integer("cout", "channels of y", s.cout, 1, 65536);
  visitor.integer("kernel", "taps along each axis, odd", s.kernel, 1, kMaxKernel, 3);
  visitor.integer("stride", "pixels of x from one output to the next", s.stride, 1, 2, 1);
  visitor.integer("pad", "zeros on each side, in pixels; half the kernel if not given", s.pad, 0, kMaxKernel,
                  s.kernel / 2);
  visitor.flag("upsample",
               "the convolution doubles x's height and width first (nearest); needs kernel 3, stride 1, pad 1",
               s.upsample, false);
}

void check_shape(const Shape& s) {
  if (s.kernel % 2 == 0)
    refuse("field 'kernel' is " + std::to_string(s.kernel) + "; it must be odd, from 1 to " +
           std::to_string(kMaxKernel));
  if (s.upsample && (s.kernel != 3 || s.stride != 1 || s.pad != 1))
    refuse("'upsample' needs kernel=3, stride=1 and pad=1");
  const std::int64_t shortest = s.times() * std::min(s.h, s.w) + 2 * s.pad;
  if (shortest < s.kernel)
    refuse("field 'kernel' is " + std::to_string(s.kernel) + ", larger than the padded image, " +
           std::to_string(shortest));
  check_extents("n, h and w", "an input", s.n * s.h * s.w, s.cin);
  check_extents("n, h and w", "an output", s.out_pixels(), s.cout);
}

Convolution forward_of(const Shape& s) {
  const std::int64_t times = s.times();
  Convolution c = plain(s.n, times * s.h, times * s.w, s.cin, s.cout, static_cast<int>(s.kernel),
                        static_cast<int>(s.stride), static_cast<int>(s.pad));
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

Support can_run_wgrad_naive(const Convolution& c, DType) {
  return takes_elements(c.cout * c.k());
}

Support can_run_wgrad_tiled(const Convolution& c, DType) {
  return wgrad_tiles(c) <= kMaxBlocks ? supported() : unsupported("needs at most 2^31 - 1 tiles of 128x128");
}

// Two blocks an SM, each with pixels enough to be worth its partial sums.
int wgrad_tiled_splits(const Convolution& c, const DeviceInfo& device) {
  constexpr std::int64_t kFewestPixels = 256;
  const std::int64_t wanted = 2 * std::max(1, device.sm_count) / wgrad_tiles(c);
  return static_cast<int>(std::max<std::int64_t>(1, std::min(wanted, c.phase_rows() / kFewestPixels)));
}

std::size_t wgrad_channel_sums_bytes(const Convolution& c, bool dbias) {
  return dbias ? aligned(static_cast<std::size_t>(c.images) * static_cast<std::size_t>(c.cout) * sizeof(float)) : 0;
}

std::size_t wgrad_partial_sums_bytes(const Convolution& c, const DeviceInfo& device) {
  const int splits = wgrad_tiled_splits(c, device);
  return splits == 1 ? 0 : static_cast<std::size_t>(splits * c.cout * c.k()) * sizeof(float);
}

}  // namespace noisefloor::convolution
