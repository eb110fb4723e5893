// The transformers that diffusers' U-Nets have between their residual blocks: Transformer2DModel, of
// BasicTransformerBlocks. `name` is the module's in the checkpoint.
#pragma once

#include <string>

#include "networks/layers.h"

namespace noisefloor::networks {

// Embedded text [n, tokens, width], which cross-attention reads.
struct Text {
  ValueId id = 0;
  std::int64_t tokens = 0, width = 0;
};

struct TransformerOptions {
  int blocks = 1;
  std::int64_t heads = 8;
  int groups = 32;                 // of the norm before it
  bool linear_projection = false;  // whether the checkpoint has proj_in and proj_out as matrices, not as 1x1 kernels
};

Image transformer(Layers& layers, const std::string& name, const Image& x, const Text& text,
                  const TransformerOptions& options);

}  // namespace noisefloor::networks
