// The convolutional blocks of diffusers' U-Nets: ResnetBlock2D, Downsample2D and Upsample2D. `name` is the module's in
// the checkpoint.
#pragma once

#include <string>

#include "networks/layers.h"

namespace noisefloor::networks {

// The timestep's embedding [n, width]. Every residual block starts from its SiLU, which ours have here already. Of a
// network with levels ahead n rows are those of all calls.
struct Embedding {
  ValueId id = 0;
  std::int64_t n = 0, width = 0;
  bool activated = true;
  std::int64_t levels_ahead = 0;
};

// What a residual block adds to its images, or to all of a video's: [n, channels].
ValueId projected(Layers& layers, const std::string& name, const Embedding& embedding, std::int64_t channels);

Image resnet_block(Layers& layers, const std::string& name, const Image& x, std::int64_t cout,
                   const Embedding& embedding, int groups, double eps = 1e-5);
Image downsample_block(Layers& layers, const std::string& name, const Image& x);
Image upsample_block(Layers& layers, const std::string& name, const Image& x);

}  // namespace noisefloor::networks
