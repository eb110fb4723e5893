// A 3x3 behind a nearest-x2 upsample as one 2x2 convolution with pad 1 of the small image [h, w], into 4 cout channels:
// its weights are those of sum_upsampled_weights (kernels/convolution), phase after phase. Phase 2 py + px makes the
// outputs (2i + py, 2j + px): they are its pixels (i + py, j + px), and its pixels of the other edge nobody's.
#pragma once

#include <cstdint>
#include <vector>

namespace noisefloor {

// Of [n, cout, h, w], in elements.
struct PhaseView {
  std::int64_t offset;
  std::vector<std::int64_t> strides;
};

// In the sums [n, h + 1, w + 1, 4, cout].
inline PhaseView phase_of_sums(std::int64_t h, std::int64_t w, std::int64_t cout, int phase) {
  const std::int64_t pixel = 4 * cout, row = (w + 1) * pixel;
  return {phase / 2 * row + phase % 2 * pixel + phase * cout, {(h + 1) * row, 1, row, pixel}};
}

// In the output [n, 2h, 2w, cout].
inline PhaseView phase_of_output(std::int64_t h, std::int64_t w, std::int64_t cout, int phase) {
  const std::int64_t row = 2 * w * cout;
  return {phase / 2 * row + phase % 2 * cout, {2 * h * row, 1, 2 * row, 2 * cout}};
}

}  // namespace noisefloor
