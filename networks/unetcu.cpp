// The U-Net that unet.cu trains (github.com/clu0/unet.cu), on images of 64x64: ADM's (Dhariwal and Nichol, NeurIPS
// 2021) without labels, whose embedding shifts and does not scale, and which changes resolution by pooling and
// repeating alone. Parameters have the names of its train_unet.py.
#include <fmt/format.h>

#include "networks/layers.h"
#include "networks/trained_unets.h"

namespace noisefloor::networks {
namespace {

class PoolingBuilder {
 public:
  PoolingBuilder(const PoolingUNet& unet, Network& network, const BuildOptions& options)
      : unet_(unet),
        network_(network),
        layers_(network.graph, network.calls, options.dtype),
        calls_(layers_.of(network.embedded())),
        original_(options.original) {}

  // silu(embedding of the timestep), which every residual block starts from, and computes in the original.
  void embed() {
    const Image waves =
        calls_.waves("timestep_embedding", network_.level().value, unet_.channels, "order=cos_sin,max_period=1000");
    const Image hidden = calls_.linear("time_embed.0", waves, 4 * unet_.channels, {.act = "silu"});
    embedding_ = calls_.linear("time_embed.2", hidden, 4 * unet_.channels, {.act = original_ ? "none" : "silu"});
  }

  Image build(Image h) {
    const std::int64_t image_channels = h.channels;
    h = layers_.kept(layers_.conv("input_blocks.0.0", h, unet_.channels, 3));
    int index = 1;
    for (int level = 0; level < unet_.levels; ++level) {
      for (int i = 0; i < unet_.blocks; ++i) h = layers_.kept(block(fmt::format("input_blocks.{}", index++), h, level));
      if (level + 1 < unet_.levels) h = layers_.kept(layers_.downsample(fmt::format("input_blocks.{}.0", index++), h));
    }
    h = residual_block("middle_block.0", h, h.channels);
    h = attention("middle_block.1", h);
    h = residual_block("middle_block.2", h, h.channels);
    index = 0;
    for (int level = unet_.levels - 1; level >= 0; --level)
      for (int i = 0; i <= unet_.blocks; ++i) {
        const std::string name = fmt::format("output_blocks.{}", index++);
        h = block(name, layers_.join(name + ".cat", h), level);
        if (level > 0 && i == unet_.blocks) h = layers_.upsample(name + ".up", h);
      }
    h = layers_.norm("out.0", h, {.groups = unet_.groups});
    return layers_.conv("out.2", h, image_channels, 3);
  }

  Layers& layers() { return layers_; }

 private:
  Image block(const std::string& name, const Image& x, int level) {
    const Image h = residual_block(name + ".0", x, (level + 1) * unet_.channels);
    return level < unet_.first_attention ? h : attention(name + ".1", h);
  }

  Image residual_block(const std::string& name, const Image& x, std::int64_t cout) {
    Image h = layers_.norm(name + ".gn1", x, {.groups = unet_.groups});
    const Image in = original_ ? calls_.silu(name + ".silu_emb", embedding_) : embedding_;
    const ValueId shift =
        layers_.graph().of_the_call(calls_.linear(name + ".l_emb", in, cout).id, network_.hoisted_levels);
    h = layers_.conv(name + ".cv3_1", h, cout, 3, {.image_shift = shift});
    h = layers_.norm(name + ".gn2", h, {.groups = unet_.groups});
    const Image skip = x.channels == cout ? x : layers_.conv(name + ".skip_connection", x, cout, 1);
    return layers_.conv(name + ".cv3_2", h, cout, 3, {.residual = skip.id});
  }

  Image attention(const std::string& name, const Image& x) {
    const Image h = layers_.norm(name + ".gn", x, {.groups = unet_.groups, .silu = false});
    const Image qkv = layers_.linear(name + ".qkv", h, 3 * x.channels, {.file_shape_suffix = {1}});
    const Image mixed = layers_.attention(name + ".attention", qkv, x.channels / unet_.head_channels);
    return layers_.linear(name + ".proj", mixed, x.channels, {.residual = x.id, .file_shape_suffix = {1}});
  }

  const PoolingUNet& unet_;
  Network& network_;
  Layers layers_, calls_;  // of images; of what is embedded
  bool original_;
  Image embedding_;
};

}  // namespace

void build_pooling_unet(const PoolingUNet& unet, const BuildOptions& options, Network& network) {
  using Kind = NetworkTensor::Kind;
  const auto& [height, width, channels, frames] = network.image;
  ValueId x = take_image(network, "x", network.batch);
  network.take("timesteps", Kind::timesteps, {network.embedded()}, DType::fp32, sampler_step::kTrainingSteps,
               network.hoisted_levels > 0);
  PoolingBuilder builder(unet, network, options);
  builder.embed();
  x = input_of_noise_predictor(options, network, x);
  const ValueId in = builder.layers().cast("input", x, options.dtype);
  give_image(network, builder.layers(), builder.build({in, height, width, channels}));
}

NetworkInfo unetcu_row() {
  return {.name = "unetcu",
          .description = "the 64x64 U-Net that unet.cu trains, unconditional; its files are read and written",
          .prediction = sampler_step::Prediction::noise,
          .image = {64, 64, 3},
          .divisor = 8,
          .parameters = 20'494'211,
          .schedule = sampler_step::Schedule::linear,
          .builder = [](const BuildOptions& options, Network& network) { build_pooling_unet({}, options, network); }};
}

}  // namespace noisefloor::networks
