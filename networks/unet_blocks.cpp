#include "networks/unet_blocks.h"

namespace noisefloor::networks {

ValueId projected(Layers& layers, const std::string& name, const Embedding& embedding, std::int64_t channels) {
  const auto& [id, n, width, activated, levels_ahead] = embedding;
  const ValueId in = activated ? id : layers.silu(name + ".nonlinearity", id, n, width);
  return layers.graph().of_the_call(layers.linear(name + ".time_emb_proj", in, n, width, channels), levels_ahead);
}

Image resnet_block(Layers& layers, const std::string& name, const Image& x, std::int64_t cout,
                   const Embedding& embedding, int groups, double eps) {
  Image h = layers.norm(name + ".norm1", x, {.groups = groups, .eps = eps});
  const ValueId shift = projected(layers, name, embedding, cout);
  h = layers.conv(name + ".conv1", h, cout, 3, {.image_shift = shift});
  h = layers.norm(name + ".norm2", h, {.groups = groups, .eps = eps});
  ValueId skip = x.id;
  if (x.channels != cout)  // a convolution of one tap: a product
    skip = layers.linear(name + ".conv_shortcut", x.id, layers.batch() * x.pixels(), x.channels, cout,
                         {.file_shape_suffix = {1, 1}});
  return layers.conv(name + ".conv2", h, cout, 3, {.residual = skip});
}

Image downsample_block(Layers& layers, const std::string& name, const Image& x) {
  return layers.conv(name + ".conv", x, x.channels, 3, {.stride = 2});
}

Image upsample_block(Layers& layers, const std::string& name, const Image& x) {
  return layers.conv(name + ".conv", x, x.channels, 3, {.upsample = true});
}

}  // namespace noisefloor::networks
