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
// The sums of all four phases, then each phase's outputs from its view of them (phase_views.h).
std::vector<Stage> four_phase_stages(const Shape& shape, DType dtype, const convolution::Operands& has,
                                     const Algorithms& earlier);

}  // namespace noisefloor::cudnn
