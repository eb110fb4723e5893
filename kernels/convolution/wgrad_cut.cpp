#include "kernels/convolution/wgrad_cut.h"

#include <algorithm>

#include "kernels/convolution/gradient.h"

namespace noisefloor::convolution {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

// Microseconds on an H200: of a step, of a share's sums, which are written and read once more, and of the launch that
// adds them.
constexpr double kStepTime = 0.77, kShareTime = 0.045, kAddTime = 2.0;

double expected_time(const Convolution& c, const WgradCut& cut) {
  double time = kStepTime * static_cast<double>(ceil_div(cut.whole, cut.blocks) * cut.steps);
  if (cut.shared_tiles() == 0) return time;
  time += kStepTime * static_cast<double>(ceil_div(cut.shared_steps(), cut.sharing_blocks));
  const double wide = kWgradBlock * (c.y.taps == 1 ? kWgradBlocks : 1);  // of a tile, not all of which need be there
  return time + kAddTime + kShareTime * cut.places() * c.cin * c.cout / (wide * wide * cut.tiles);
}

}  // namespace

Convolution laid_out(const Convolution& c) {
  Convolution laid = c;
  laid.cin = (c.cin + 7) / 8 * 8, laid.cout = (c.cout + 7) / 8 * 8;
  for (Axis* const axis : {&laid.y, &laid.x}) axis->in *= axis->repeat, axis->repeat = 1;
  return laid;
}

WgradWorkspace::WgradWorkspace(const Convolution& c, DType dtype, bool image_shift, int sm_count) {
  const Convolution laid = laid_out(c);
  cut = cut_wgrad(laid, sm_count);
  const auto bytes_of = [&](std::int64_t elements) {
    return aligned(static_cast<std::size_t>(elements) * size_of(dtype));
  };
  x_bytes = laid.input_elements() == c.input_elements() ? 0 : bytes_of(laid.input_elements());
  dy_bytes = laid.cout == c.cout ? 0 : bytes_of(laid.phase_rows() * laid.cout);
  const std::int64_t boxes = std::int64_t{c.images} * cut.boxes();
  const bool of_boxes = image_shift && c.y.taps > 1 && cut.boxes() > 1;
  boxes_bytes = of_boxes ? aligned(static_cast<std::size_t>(boxes * wgrad_box_channels(c.cout)) * sizeof(float)) : 0;
  x = boxes_bytes;
  dy = x + x_bytes;
  partials = dy + dy_bytes;
  bytes = partials + static_cast<std::size_t>(cut.places()) * kWgradShare * sizeof(float);
}

WgradCut cut_wgrad(const Convolution& c, int sm_count) {
  WgradCut cut;
  const auto boxes = [&](const WgradBox& box) {
    return ceil_div(c.x.out, box.w) * ceil_div(c.y.out, box.h) * ceil_div(c.images, box.images);
  };
  const bool one_tap = c.y.taps == 1;
  constexpr double kSmallTime = 1.15;  // of a step, which loads twice as much
  cut.small =
      !one_tap && kSmallTime * static_cast<double>(boxes(kWgradSmall.dy)) < static_cast<double>(boxes(kWgradHalo.dy));
  const WgradStep& step = wgrad_step_of(c, cut);
  cut.steps = static_cast<int>(one_tap ? ceil_div(c.phase_rows(), step.dy.w) : boxes(step.dy));
  cut.across = one_tap ? int{cut.steps} : static_cast<int>(ceil_div(c.x.out, step.dy.w));
  cut.down = one_tap ? 1 : static_cast<int>(ceil_div(c.y.out, step.dy.h));
  const int wide = kWgradBlock * (one_tap ? kWgradBlocks : 1);  // channels of a tile
  cut.tiles_ci = static_cast<int>(ceil_div(c.cin, wide));
  cut.tiles = static_cast<int>(ceil_div(c.cout, wide) * cut.tiles_ci);
  cut.blocks = static_cast<int>(std::min<std::int64_t>(std::max(1, sm_count), std::int64_t{cut.tiles} * cut.steps));

  WgradCut best = cut;
  best.whole = cut.tiles;
  double least = expected_time(c, best);
  cut.whole = cut.tiles / cut.blocks * cut.blocks;
  const auto try_sharing = [&](int blocks) {
    cut.sharing_blocks = blocks;
    if (const double time = expected_time(c, cut); time < least) least = time, best = cut;
  };
  if (const int shared = cut.shared_tiles(); shared > 0) {
    for (int splits = 2; splits * shared <= cut.blocks; ++splits) try_sharing(splits * shared);
    try_sharing(cut.blocks);
  }
  best.blocks = std::min(best.blocks, std::max<int>(best.whole, best.sharing_blocks));  // that have work
  return best;
}

}  // namespace noisefloor::convolution
