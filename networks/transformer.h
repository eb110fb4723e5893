// The transformers that diffusers' U-Nets have between their residual blocks: Transformer2DModel, of
// BasicTransformerBlocks. `name` is the module's in the checkpoint.
#pragma once

#include <string>

#include "networks/layers.h"

namespace noisefloor::networks {

// Embedded text [n, tokens, width], which cross-attention reads. A text may be that of several images in a row, as are
// the frames of a video.
struct Text {
  ValueId id = 0;
  std::int64_t n = 0, tokens = 0, width = 0;
  // Over one key softmax is 1, whatever the query: what is attended to is that key's value. So cross-attention is a
  // vector per text, and its query, keys and norm are not computed; but in an original, which computes all.
  bool original = false;
};

struct TransformerOptions {
  int blocks = 1;
  std::int64_t heads = 8;
  int groups = 32;                 // of the norm before it
  bool linear_projection = false;  // whether the checkpoint has proj_in and proj_out as matrices, not as 1x1 kernels
};

// One BasicTransformerBlock. With `frames` its attention runs along those, for every pixel by itself. What it gives is
// the sum of `end`: shifted, or blended.
Image transformer_block(Layers& layers, const std::string& name, const Image& x, const Text& text, std::int64_t heads,
                        std::int64_t frames = 0, LinearOptions end = {});

Image transformer(Layers& layers, const std::string& name, const Image& x, const Text& text,
                  const TransformerOptions& options);

}  // namespace noisefloor::networks
