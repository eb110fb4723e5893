// The convolutional blocks of diffusers' U-Nets: ResnetBlock2D, Downsample2D and Upsample2D. `name` is the module's in
// the checkpoint.
#pragma once

#include <string>

#include "networks/layers.h"

namespace noisefloor::networks {

// silu of the timestep's embedding, [n, width]: every residual block starts from it.
struct Embedding {
  ValueId id = 0;
  std::int64_t width = 0;
};

Image resnet_block(Layers& layers, const std::string& name, const Image& x, std::int64_t cout,
                   const Embedding& embedding, int groups, double eps = 1e-5);
Image downsample_block(Layers& layers, const std::string& name, const Image& x);
Image upsample_block(Layers& layers, const std::string& name, const Image& x);

}  // namespace noisefloor::networks
