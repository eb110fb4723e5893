// Changes of resolution, and the skip concatenation, of channels-last activations, and their backward passes.
//
//   nearest_up2    y[n, 2h, 2w, channels] with y[., i, j, .] = scale x[., i / 2, j / 2, .]
//   average_down2  y[n, h / 2, w / 2, channels], scale times the mean of each 2x2 block of x[n, h, w, channels]; h and
//                  w even
//   concat         y[n, h, w, channels + skip_channels] = x and, behind its channels, skip[n, h, w, skip_channels];
//                  a pixel may be a whole tensor: n, h and w of 1 put two tensors in a row
//   split          y[n, h, w, channels] and skip[n, h, w, skip_channels] from x[n, h, w, channels + skip_channels]
//
// EDM's resampling filter [1, 1] is nearest_up2 one way and average_down2 the other. The backward pass of nearest_up2
// is average_down2 with scale=4, that of average_down2 nearest_up2 with scale=0.25, and that of concat split.
#pragma once

#include <cstdint>

#include "kernels/core/definition.h"

namespace noisefloor::resample {

enum class Operation { nearest_up2, average_down2, concat, split };

struct Problem {
  Operation op = Operation::nearest_up2;
  std::int64_t n = 1;  // images
  std::int64_t h = 1;  // of x
  std::int64_t w = 1;
  std::int64_t channels = 1;       // of x; split: of y
  std::int64_t skip_channels = 0;  // concat, split
  double scale = 1;                // nearest_up2, average_down2

  std::int64_t out_h() const {
    return op == Operation::nearest_up2 ? 2 * h : op == Operation::average_down2 ? h / 2 : h;
  }
  std::int64_t out_w() const {
    return op == Operation::nearest_up2 ? 2 * w : op == Operation::average_down2 ? w / 2 : w;
  }
  std::int64_t out_channels() const { return channels + skip_channels; }         // split: of x
  std::int64_t total() const { return n * out_h() * out_w() * out_channels(); }  // elements of y; split: of both
  // No arithmetic: the variants that are about arithmetic do not apply.
  bool moves_data() const { return op != Operation::average_down2 && scale == 1; }
};

// Device pointers (host pointers for the host variant), 16-byte aligned; T is the row's dtype.
struct Tensors {
  const void* x = nullptr;     // T [n, h, w, channels]; split: [n, h, w, channels + skip_channels]
  const void* skip = nullptr;  // T [n, h, w, skip_channels], concat only
  void* y = nullptr;           // T
  void* skip_out = nullptr;    // T [n, h, w, skip_channels], split only: tensor skip
};

using Definition = OpDefinition<Problem, Tensors>;
extern const Definition definition;
Definition::Variants variants;  // variants.cpp; best last
// Each in the file of its name.
Definition::Launcher launch_host, launch_naive, launch_tiled, launch_tensor_core_sm80, launch_ptx_sm90a;

}  // namespace noisefloor::resample
