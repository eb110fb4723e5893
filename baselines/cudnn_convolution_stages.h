// The cuDNN graphs of a convolution with everything behind it: one graph, or two in sequence.
#pragma once

#include <functional>
#include <vector>

#include "baselines/cudnn_run.h"
#include "kernels/conv2d/conv2d.h"

namespace noisefloor::cudnn {

// What the three ops have in common. x is what the convolution reads, after any upsampling.
struct Shape {
  std::int64_t n, h, w, cin, out_h, out_w, cout, kernel_h, kernel_w;
  ConvolutionPlace place;
  bool transposed = false;
  bool upsample = false;
  bool four_phases = false;  // x is the small image, out_h and out_w those of one phase
  convolution::Activation act = convolution::Activation::none;
  double gain = 1;
};

// A graph, and where its pointers come from; it is launched once, or once for each phase.
struct Stage {
  using Bind = std::function<std::vector<void*>(const convolution::Operands&, void* sums, int phase)>;
  TunedGraph graph;
  Bind bind;
  int launches = 1;
};
constexpr std::size_t kWordsOfStage = 2;  // of a choice

// `has`: which operands the problem has; only whether they are null counts. Each throws LibraryRefused.
std::vector<Stage> fused_stage(const Shape& shape, DType dtype, const convolution::Operands& has,
                               const Algorithms& earlier);
// The convolution's sums in fp32, then the rest.
std::vector<Stage> separate_stages(const Shape& shape, DType dtype, const convolution::Operands& has,
                                   const Algorithms& earlier);
// The sums of all four phases, then each phase's outputs from its view of them.
std::vector<Stage> four_phase_stages(const Shape& shape, DType dtype, const convolution::Operands& has,
                                     const Algorithms& earlier);

// ---- A 3x3 behind a nearest-x2 upsample as one 2x2 convolution with pad 1 of the small image [h, w], into 4 cout
// channels: its weights are those of sum_upsampled_weights (kernels/convolution), phase after phase. Phase 2 py + px
// makes the outputs (2i + py, 2j + px): they are its pixels (i + py, j + px), and its pixels of the other edge
// nobody's.

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

}  // namespace noisefloor::cudnn
