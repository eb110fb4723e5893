// Source: Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models" (CVPR 2022).
#include "networks/unet.h"

#include <fmt/format.h>

#include "networks/inputs.h"
#include "networks/layers.h"
#include "networks/transformer.h"
#include "networks/unet_blocks.h"

namespace noisefloor::networks {
namespace {

class Builder {
 public:
  Builder(const UNet& unet, Network& network, DType dtype)
      : unet_(unet), layers_(network.graph, network.calls, dtype) {}

  void embed(Network& network, ValueId timesteps) {
    const std::int64_t n = layers_.batch(), channels = unet_.levels.front().channels, width = 4 * channels;
    const ValueId hidden =
        layers_.linear("time_embedding.linear_1", waves("timestep_embedding", timesteps, n, channels), n, channels,
                       width, {.act = "silu"});
    const auto embedded = [&](const LinearOptions& options) {
      return layers_.linear("time_embedding.linear_2", hidden, n, width, width, options);
    };
    embedding_ = {unet_.added.count == 0 ? embedded({.act = "silu"}) : added_to(embedded({}), width, network), width};
  }

  void read(ValueId text, std::int64_t tokens) { text_ = {text, tokens, unet_.text_width}; }

  Image build(Image h, std::int64_t out_channels) {
    h = layers_.conv("conv_in", h, unet_.levels.front().channels, 3);
    std::vector<Image> skips{h};
    for (std::size_t i = 0; i < unet_.levels.size(); ++i) {
      const std::string name = fmt::format("down_blocks.{}", i);
      for (int block = 0; block < unet_.blocks; ++block) {
        h = residual_and_transformer(name, block, h, unet_.levels[i]);
        skips.push_back(h);
      }
      if (i + 1 == unet_.levels.size()) break;
      h = downsample_block(layers_, name + ".downsamplers.0", h);
      skips.push_back(h);
    }

    UNet::Level middle = unet_.levels.back();
    middle.transformer_blocks = unet_.middle_transformer_blocks;
    h = residual_and_transformer("mid_block", 0, h, middle);
    h = resnet_block(layers_, "mid_block.resnets.1", h, h.channels, embedding_, unet_.groups);

    for (std::size_t i = 0; i < unet_.levels.size(); ++i) {
      const std::string name = fmt::format("up_blocks.{}", i);
      for (int block = 0; block <= unet_.blocks; ++block) {
        h = layers_.concat(fmt::format("{}.cat.{}", name, block), h, skips.back());
        skips.pop_back();
        h = residual_and_transformer(name, block, h, unet_.levels[unet_.levels.size() - 1 - i]);
      }
      if (i + 1 < unet_.levels.size()) h = upsample_block(layers_, name + ".upsamplers.0", h);
    }
    h = layers_.norm("conv_norm_out", h, {.groups = unet_.groups});
    return layers_.conv("conv_out", h, out_channels, 3);
  }

  Layers& layers() { return layers_; }

 private:
  Image residual_and_transformer(const std::string& name, int block, const Image& x, const UNet::Level& level) {
    const Image h =
        resnet_block(layers_, fmt::format("{}.resnets.{}", name, block), x, level.channels, embedding_, unet_.groups);
    if (level.transformer_blocks == 0) return h;
    return transformer(layers_, fmt::format("{}.attentions.{}", name, block), h, text_,
                       {level.transformer_blocks, level.heads, unet_.groups, unet_.linear_projection});
  }

  ValueId waves(const char* name, ValueId t, std::int64_t batch, std::int64_t channels) {
    return layers_.graph()
        .add(name, "timestep_embedding", fmt::format("batch={},channels={},order=cos_sin", batch, channels),
             layers_.dtype(), {{"t", t}})
        .at(0);
  }

  // silu(time + what else is embedded)
  ValueId added_to(ValueId time, std::int64_t width, Network& network) {
    using Kind = NetworkTensor::Kind;
    const UNet::Added& added = unet_.added;
    const std::int64_t n = layers_.batch();
    Image all{0, 1, 1, 0};
    if (added.vector_width > 0)
      all = {network.take(added.vector, Kind::conditioning, {n, added.vector_width}, layers_.dtype()), 1, 1,
             added.vector_width};
    const ValueId numbers = network.take(added.numbers, Kind::conditioning, {n, added.count}, DType::fp32);
    const Image embedded{waves("add_time_proj", numbers, n * added.count, added.width), 1, 1,
                         added.count * added.width};
    all = all.channels == 0 ? embedded : layers_.concat("add_embedding.cat", all, embedded);
    const ValueId hidden = layers_.linear("add_embedding.linear_1", all.id, n, all.channels, width, {.act = "silu"});
    const ValueId sum = layers_.linear("add_embedding.linear_2", hidden, n, width, width, {.residual = time});
    return layers_.graph()
        .add("embedding", "elementwise", fmt::format("op=silu,n={},hw=1,channels={}", n, width), layers_.dtype(),
             {{"x", sum}})
        .at(0);
  }

  const UNet& unet_;
  Layers layers_;
  Embedding embedding_;
  Text text_;
};

}  // namespace

void build_unet(const UNet& unet, const BuildOptions& options, Network& network) {
  using Kind = NetworkTensor::Kind;
  const auto& [height, width, channels, frames] = network.image;
  const std::int64_t n = network.calls;
  ValueId x = network.take("x", Kind::image, {network.batch, height, width, channels}, DType::fp32);
  const ValueId timesteps = network.take("timesteps", Kind::timesteps, {n}, DType::fp32, sampler_step::kTrainingSteps);
  const ValueId text =
      network.take("encoder_hidden_states", Kind::text, {n, options.sizes.tokens, unet.text_width}, options.dtype);

  Builder builder(unet, network, options.dtype);
  builder.embed(network, timesteps);
  builder.read(text, options.sizes.tokens);
  x = input_of_noise_predictor(options, network, x);
  const ValueId in = builder.layers().cast("input", x, DType::fp32, options.dtype);
  const Image out = builder.build({in, height, width, channels}, channels);
  network.give("output", builder.layers().cast("output", out.id, options.dtype, DType::fp32),
               {n, height, width, channels});
}

}  // namespace noisefloor::networks
