// Source: Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models" (CVPR 2022).
#include "networks/diffusers.h"

#include <fmt/format.h>

#include <algorithm>

#include "networks/blocks.h"
#include "networks/layers.h"

namespace noisefloor::networks {
namespace {

class UnetBuilder {
 public:
  // `frames`: of videos; 0 for images.
  UnetBuilder(const UNet& unet, Network& network, const BuildOptions& options, std::int64_t frames)
      : unet_(unet),
        layers_(network.graph, network.calls * std::max<std::int64_t>(1, frames), options.dtype),
        calls_(layers_.of(network.embedded())),
        frames_(frames),
        original_(options.original) {}

  void embed(Network& network, ValueId timesteps) {
    const std::int64_t n = calls_.batch(), channels = unet_.levels.front().channels, width = 4 * channels;
    const Image hidden = calls_.linear("time_embedding.linear_1",
                                       calls_.waves("timestep_embedding", timesteps, channels), width, {.act = "silu"});
    const bool adds = unet_.added.count > 0;
    Image all = calls_.linear("time_embedding.linear_2", hidden, width, {.act = adds || original_ ? "none" : "silu"});
    if (adds) all = added_to(all, network);
    embedding_ = temporal_ = {all, n, !original_, network.hoisted_levels};
    if (frames_ == 0) return;
    embedding_ = {calls_.repeated("embedding.frames", all, frames_), n * frames_, !original_};
    if (original_) temporal_ = embedding_;
  }

  void read(ValueId text, std::int64_t n, std::int64_t tokens) {
    text_ = {{text, tokens, 1, unet_.text_width}, n, original_};
  }

  Image build(Image h, std::int64_t out_channels) {
    h = layers_.kept(layers_.conv("conv_in", h, unet_.levels.front().channels, 3));
    for (std::size_t i = 0; i < unet_.levels.size(); ++i) {
      const std::string name = fmt::format("down_blocks.{}", i);
      for (int block = 0; block < unet_.blocks; ++block)
        h = layers_.kept(residual_and_transformer(name, block, h, unet_.levels[i], Half::down));
      if (i + 1 < unet_.levels.size())
        h = layers_.kept(layers_.conv(name + ".downsamplers.0.conv", h, h.channels, 3, {.stride = 2}));
    }

    UNet::Level middle = unet_.levels.back();
    middle.transformer_blocks = unet_.middle_transformer_blocks;
    h = residual_and_transformer("mid_block", 0, h, middle, Half::middle);
    h = residual_block("mid_block", 1, h, middle, Half::middle);

    for (std::size_t i = 0; i < unet_.levels.size(); ++i) {
      const std::string name = fmt::format("up_blocks.{}", i);
      for (int block = 0; block <= unet_.blocks; ++block) {
        h = layers_.join(fmt::format("{}.cat.{}", name, block), h);
        h = residual_and_transformer(name, block, h, unet_.levels[unet_.levels.size() - 1 - i], Half::up);
      }
      if (i + 1 < unet_.levels.size())
        h = layers_.conv(name + ".upsamplers.0.conv", h, h.channels, 3, {.upsample = true});
    }
    h = layers_.norm("conv_norm_out", h, {.groups = unet_.groups});
    return layers_.conv("conv_out", h, out_channels, 3);
  }

  Layers& layers() { return layers_; }

 private:
  enum class Half { down, middle, up };

  Image residual_block(const std::string& name, int block, const Image& x, const UNet::Level& level, Half half) {
    const std::string module = fmt::format("{}.resnets.{}", name, block);
    if (frames_ == 0) return resnet_block(layers_, module, x, level.channels, embedding_, unet_.groups);
    // diffusers' video blocks do not agree on it
    const double eps = half == Half::up || (half == Half::down && level.transformer_blocks > 0) ? 1e-6 : 1e-5;
    return video_resnet_block(layers_, module, x, level.channels, embedding_, temporal_, unet_.groups, eps, frames_);
  }

  Image residual_and_transformer(const std::string& name, int block, const Image& x, const UNet::Level& level,
                                 Half half) {
    const Image in = residual_block(name, block, x, level, half);
    if (level.transformer_blocks == 0) return in;
    const std::string module = fmt::format("{}.attentions.{}", name, block);
    const Image h = frames_ > 0
                        ? video_transformer(layers_, module, in, text_, level.heads, unet_.groups, frames_)
                        : transformer(layers_, module, in, text_,
                                      {level.transformer_blocks, level.heads, unet_.groups, unet_.linear_projection});
    return original_ ? layers_.channels_first_and_back(module + ".copy", h) : h;
  }

  // time + what else is embedded, and of ours its SiLU
  Image added_to(const Image& time, Network& network) {
    using Kind = NetworkTensor::Kind;
    const UNet::Added& added = unet_.added;
    const std::int64_t n = calls_.batch();
    Image all;
    if (added.vector_width > 0)
      all = {network.take(added.vector, Kind::conditioning, {n, added.vector_width}, calls_.dtype()), 1, 1,
             added.vector_width};
    const ValueId numbers = network.take(added.numbers, Kind::conditioning, {n, added.count}, DType::fp32);
    Image embedded = calls_.of(n * added.count).waves("add_time_proj", numbers, added.width);
    embedded.channels *= added.count;
    all = all.channels == 0 ? embedded : calls_.concat("add_embedding.cat", all, embedded);
    const Image hidden = calls_.linear("add_embedding.linear_1", all, time.channels, {.act = "silu"});
    const Image sum = calls_.linear("add_embedding.linear_2", hidden, time.channels, {.residual = time.id});
    return original_ ? sum : calls_.silu("embedding", sum);
  }

  const UNet& unet_;
  Layers layers_, calls_;  // of images or frames; of what is embedded of calls
  std::int64_t frames_;
  bool original_;
  Embedding embedding_, temporal_;  // of images or frames; that temporal halves read, of videos in ours
  Text text_;
};

}  // namespace

void build_unet(const UNet& unet, const BuildOptions& options, Network& network) {
  using Kind = NetworkTensor::Kind;
  const auto& [height, width, channels, frames] = network.image;
  const std::int64_t n = network.calls;
  ValueId x = take_image(network, "x", network.batch);
  if (unet.added.count > 0) network.hoisted_levels = 0;  // what is added would be repeated for every level
  const ValueId timesteps = network.take("timesteps", Kind::timesteps, {network.embedded()}, DType::fp32,
                                         sampler_step::kTrainingSteps, network.hoisted_levels > 0);
  const ValueId text =
      network.take("encoder_hidden_states", Kind::text, {n, options.sizes.tokens, unet.text_width}, options.dtype);

  UnetBuilder builder(unet, network, options, 0);
  builder.embed(network, timesteps);
  builder.read(text, n, options.sizes.tokens);
  x = input_of_noise_predictor(options, network, x);
  const ValueId in = builder.layers().cast("input", x, options.dtype);
  give_image(network, builder.layers(), builder.build({in, height, width, channels}, channels));
}

void build_video_unet(const UNet& unet, const BuildOptions& options, Network& network) {
  using Kind = NetworkTensor::Kind;
  const auto& [height, width, channels, frames] = network.image;
  const std::int64_t n = network.calls;
  ValueId x = take_image(network, "x", network.batch);
  network.hoisted_levels = 0;  // what is added would be repeated for every level
  ValueId level = options.original ? network.take("timesteps", Kind::conditioning, {n}, DType::fp32)
                                   : network.take("sigma", Kind::sigma, {n}, DType::fp32);
  const ValueId picture = take_image(network, "image_latents", n);
  const ValueId text =
      network.take("encoder_hidden_states", Kind::conditioning, {n, 1, unet.text_width}, options.dtype);

  if (options.guided) x = twice(network.graph, x);
  if (!options.original) {  // whose scheduler scales
    const auto scaled = precondition(network.graph, "precondition.input", "input", 1, {{"x", x}, {"sigma", level}});
    x = scaled.at(0);
    level = scaled.at(1);
  }
  UnetBuilder builder(unet, network, options, frames);
  builder.embed(network, level);
  builder.read(text, n, 1);
  Layers exact(network.graph, n * frames, DType::fp32);
  Image in = exact.concat("input.cat", {x, height, width, channels}, {picture, height, width, channels});
  in.id = builder.layers().cast("input", in.id, options.dtype);
  give_image(network, builder.layers(), builder.build(in, channels));
}

}  // namespace noisefloor::networks
