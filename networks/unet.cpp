// Source: Rombach et al., "High-Resolution Image Synthesis with Latent Diffusion Models" (CVPR 2022).
#include "networks/unet.h"

#include <fmt/format.h>

#include <algorithm>

#include "networks/inputs.h"
#include "networks/layers.h"
#include "networks/transformer.h"
#include "networks/unet_blocks.h"
#include "networks/video_blocks.h"

namespace noisefloor::networks {
namespace {

class Builder {
 public:
  // `frames`: of videos; 0 for images.
  Builder(const UNet& unet, Network& network, DType dtype, std::int64_t frames)
      : unet_(unet),
        layers_(network.graph, network.calls * std::max<std::int64_t>(1, frames), dtype),
        calls_(network.graph, network.calls, dtype),
        frames_(frames) {}

  void embed(Network& network, ValueId timesteps) {
    const std::int64_t n = calls_.batch(), channels = unet_.levels.front().channels, width = 4 * channels;
    const ValueId hidden = calls_.linear("time_embedding.linear_1", waves("timestep_embedding", timesteps, n, channels),
                                         n, channels, width, {.act = "silu"});
    const auto embedded = [&](const LinearOptions& options) {
      return calls_.linear("time_embedding.linear_2", hidden, n, width, width, options);
    };
    of_calls_ = {unet_.added.count == 0 ? embedded({.act = "silu"}) : added_to(embedded({}), width, network), width};
    embedding_ = of_calls_;
    if (frames_ > 0) embedding_.id = calls_.repeated("embedding.frames", of_calls_.id, width, frames_);
  }

  void read(ValueId text, std::int64_t tokens) {
    text_ = {text, calls_.batch(), tokens, unet_.text_width, unet_.one_key_rule};
  }

  Image build(Image h, std::int64_t out_channels) {
    h = layers_.conv("conv_in", h, unet_.levels.front().channels, 3);
    std::vector<Image> skips{h};
    for (std::size_t i = 0; i < unet_.levels.size(); ++i) {
      const std::string name = fmt::format("down_blocks.{}", i);
      for (int block = 0; block < unet_.blocks; ++block) {
        h = residual_and_transformer(name, block, h, unet_.levels[i], Half::down);
        skips.push_back(h);
      }
      if (i + 1 == unet_.levels.size()) break;
      h = downsample_block(layers_, name + ".downsamplers.0", h);
      skips.push_back(h);
    }

    UNet::Level middle = unet_.levels.back();
    middle.transformer_blocks = unet_.middle_transformer_blocks;
    h = residual_and_transformer("mid_block", 0, h, middle, Half::middle);
    h = residual_block("mid_block", 1, h, middle, Half::middle);

    for (std::size_t i = 0; i < unet_.levels.size(); ++i) {
      const std::string name = fmt::format("up_blocks.{}", i);
      for (int block = 0; block <= unet_.blocks; ++block) {
        h = layers_.join(fmt::format("{}.cat.{}", name, block), h, skips.back());
        skips.pop_back();
        h = residual_and_transformer(name, block, h, unet_.levels[unet_.levels.size() - 1 - i], Half::up);
      }
      if (i + 1 < unet_.levels.size()) h = upsample_block(layers_, name + ".upsamplers.0", h);
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
    return video_resnet_block(layers_, module, x, level.channels, embedding_, of_calls_, unet_.groups, eps, frames_);
  }

  Image residual_and_transformer(const std::string& name, int block, const Image& x, const UNet::Level& level,
                                 Half half) {
    const Image h = residual_block(name, block, x, level, half);
    if (level.transformer_blocks == 0) return h;
    const std::string module = fmt::format("{}.attentions.{}", name, block);
    if (frames_ > 0) return video_transformer(layers_, module, h, text_, level.heads, unet_.groups, frames_);
    return transformer(layers_, module, h, text_,
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
    const std::int64_t n = calls_.batch();
    Image all{0, 1, 1, 0};
    if (added.vector_width > 0)
      all = {network.take(added.vector, Kind::conditioning, {n, added.vector_width}, calls_.dtype()), 1, 1,
             added.vector_width};
    const ValueId numbers = network.take(added.numbers, Kind::conditioning, {n, added.count}, DType::fp32);
    const Image embedded{waves("add_time_proj", numbers, n * added.count, added.width), 1, 1,
                         added.count * added.width};
    all = all.channels == 0 ? embedded : calls_.concat("add_embedding.cat", all, embedded);
    const ValueId hidden = calls_.linear("add_embedding.linear_1", all.id, n, all.channels, width, {.act = "silu"});
    const ValueId sum = calls_.linear("add_embedding.linear_2", hidden, n, width, width, {.residual = time});
    return calls_.graph()
        .add("embedding", "elementwise", fmt::format("op=silu,n={},hw=1,channels={}", n, width), calls_.dtype(),
             {{"x", sum}})
        .at(0);
  }

  const UNet& unet_;
  Layers layers_, calls_;  // of images or frames; of calls
  std::int64_t frames_;
  Embedding embedding_, of_calls_;
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

  Builder builder(unet, network, options.dtype, 0);
  builder.embed(network, timesteps);
  builder.read(text, options.sizes.tokens);
  x = input_of_noise_predictor(options, network, x);
  const ValueId in = builder.layers().cast("input", x, DType::fp32, options.dtype);
  const Image out = builder.build({in, height, width, channels}, channels);
  network.below = builder.layers().below();
  network.give("output", builder.layers().cast("output", out.id, options.dtype, DType::fp32),
               {n, height, width, channels});
}

void build_video_unet(const UNet& unet, const BuildOptions& options, Network& network) {
  using Kind = NetworkTensor::Kind;
  const auto& [height, width, channels, frames] = network.image;
  const std::int64_t n = network.calls;
  ValueId x = network.take("x", Kind::image, {network.batch, frames, height, width, channels}, DType::fp32);
  const ValueId sigma = network.take("sigma", Kind::sigma, {n}, DType::fp32);
  const ValueId picture = network.take("image_latents", Kind::image, {n, frames, height, width, channels}, DType::fp32);
  const ValueId text =
      network.take("encoder_hidden_states", Kind::conditioning, {n, 1, unet.text_width}, options.dtype);

  if (options.guided) x = twice(network.graph, x);
  const auto scaled =
      network.graph.add("precondition.input", "edm_precondition",
                        fmt::format("side=input,batch={},elements={},sigma_data=1", n, network.image.elements()),
                        DType::fp32, {{"x", x}, {"sigma", sigma}});
  Builder builder(unet, network, options.dtype, frames);
  builder.embed(network, scaled.at(1));
  builder.read(text, 1);
  Layers exact(network.graph, n * frames, DType::fp32);
  Image in = exact.concat("input.cat", {scaled.at(0), height, width, channels}, {picture, height, width, channels});
  in.id = builder.layers().cast("input", in.id, DType::fp32, options.dtype);
  const Image out = builder.build(in, channels);
  network.below = builder.layers().below();
  network.give("output", builder.layers().cast("output", out.id, options.dtype, DType::fp32),
               {n, frames, height, width, channels});
}

}  // namespace noisefloor::networks
