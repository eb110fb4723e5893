#include "kernels/convolution/gradient.h"

#include <algorithm>

#include "kernels/device/limits.h"

namespace noisefloor::convolution {

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
