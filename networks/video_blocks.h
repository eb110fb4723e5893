// What diffusers' video U-Net has in place of residual blocks and transformers: each with a second one along the frames
// behind it, and a learnt blend of both. Images are frames; those of a video follow each other.
#pragma once

#include <string>

#include "networks/transformer.h"
#include "networks/unet_blocks.h"

namespace noisefloor::networks {

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
