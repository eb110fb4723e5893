// The blocks of diffusers' networks: residual ones, transformers between them, and for videos each with a second one
// along the frames behind it. `name` is the module's in the checkpoint.
#pragma once

#include <optional>
#include <string>

#include "networks/layers.h"

namespace noisefloor::networks {

// ---- ResnetBlock2D

// The timestep's embedding of `n` rows. Every residual block starts from its SiLU, which ours have here already. Of a
// network with levels ahead the rows are those of all calls.
struct Embedding {
  Image rows;
  std::int64_t n = 0;
  bool activated = true;
  std::int64_t hoisted_levels = 0;
};

// What a residual block adds to its images, or to all of a video's: [n, channels].
ValueId projected(Layers& layers, const std::string& name, const Embedding& embedding, std::int64_t channels);

Image resnet_block(Layers& layers, const std::string& name, const Image& x, std::int64_t cout,
                   const Embedding& embedding, int groups, double eps = 1e-5);

// ---- Transformer2DModel, of BasicTransformerBlocks

// `n` embedded texts, which cross-attention reads. A text may be that of several images in a row, as are the frames of
// a video.
struct Text {
  Image tokens;
  std::int64_t n = 0;
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

// ---- Of videos: images are frames, and those of a video follow each other

// TemporalResnetBlock, `name` its module's, and the blend with what it takes: spatial + share h. The embedding, of each
// video or of each frame, is what a decoder has not.
Image temporal_resnet_block(Layers& layers, const std::string& name, const Image& spatial,
                            const std::optional<Embedding>& embedding, int groups, double eps, std::int64_t frames,
                            const WeightSource::Share& share);

// SpatioTemporalResBlock. The embedding of each frame, and what the temporal half reads of it, if that reads it too.
Image video_resnet_block(Layers& layers, const std::string& name, const Image& x, std::int64_t cout,
                         const Embedding& of_frames, const std::optional<Embedding>& temporal, int groups, double eps,
                         std::int64_t frames);

// TransformerSpatioTemporalModel, of one block.
Image video_transformer(Layers& layers, const std::string& name, const Image& x, const Text& text, std::int64_t heads,
                        int groups, std::int64_t frames);

}  // namespace noisefloor::networks
