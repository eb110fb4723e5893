// A small class-conditional video network of our own: a digit that moves. The modules of Stable Video Diffusion at the
// size of a digit: residual blocks and attention, each with one along the frames behind it, and a learnt blend of both,
// under the preconditioning of Karras et al. (NeurIPS 2022). baselines/pytorch/networks/moving_digits.py is the same.
#include <fmt/format.h>

#include "networks/blocks.h"
#include "networks/layers.h"
#include "networks/trained_unets.h"

namespace noisefloor::networks {
namespace {

constexpr double kSigmaData = 0.5;

class MovingDigitsBuilder {
 public:
  MovingDigitsBuilder(const MovingUNet& unet, Network& network, Layers& layers)
      : unet_(unet),
        layers_(layers),
        videos_(network.graph, network.embedded(), layers.dtype()),
        frames_(network.image.frames) {}

  // The noise level and the class of a video, and the place of a frame in it; of all calls with levels ahead.
  void embed(const Network& network, ValueId c_noise) {
    const std::int64_t waves_width = unet_.channels.front(), width = 4 * waves_width;
    LinearOptions last;
    if (network.classes > 0)
      last.residual =
          videos_.linear("model.class_embedding", {network.labels(), 1, 1, network.classes}, width, {.bias = false}).id;
    Image of_video = videos_.waves("map_noise", c_noise, waves_width);
    of_video = videos_.linear("model.time_embedding.linear_1", of_video, width, {.act = "silu"});
    of_video = videos_.linear("model.time_embedding.linear_2", of_video, width, last);
    const Image of_frames = videos_.repeated("embedding.frames", of_video, frames_);
    const std::int64_t n = videos_.batch() * frames_;
    Layers all = videos_.of(n);
    const ValueId places = all.graph().constant("frames", {n}, DType::fp32, frames_);
    const Image waves = all.waves("map_frame", places, waves_width);
    const Image sum = all.linear("model.frame_embedding", waves, width, {.residual = of_frames.id});
    embedding_ = {all.silu("embedding", sum), n, true, network.hoisted_levels};
  }

  Image build(Image h, std::int64_t image_channels) {
    const std::vector<std::int64_t>& channels = unet_.channels;
    h = layers_.conv("model.conv_in", h, channels[0], 3);
    for (std::size_t i = 0; i + 1 < channels.size(); ++i) {
      h = layers_.conv(fmt::format("model.down.{}", i), layers_.kept(h), h.channels, 3, {.stride = 2});
      h = level(fmt::format("model.encoder.{}", i), h, channels[i + 1]);
    }
    h = block("model.middle", h, h.channels);
    for (std::size_t i = 0; i + 1 < channels.size(); ++i) {
      const std::int64_t above = channels[channels.size() - 2 - i];
      h = layers_.conv(fmt::format("model.up.{}", i), h, above, 3, {.upsample = true});
      h = level(fmt::format("model.decoder.{}", i), layers_.join(fmt::format("model.cat.{}", i), h), above);
    }
    h = layers_.norm("model.norm_out", h, {.groups = unet_.groups});
    return layers_.conv("model.conv_out", h, image_channels, 3);
  }

 private:
  Image block(const std::string& name, const Image& x, std::int64_t channels) {
    return video_resnet_block(layers_, name, x, channels, embedding_, {}, unet_.groups, 1e-5, frames_);
  }

  // Attention on all levels but the first.
  Image level(const std::string& name, const Image& x, std::int64_t channels) {
    const Image h = block(name + ".block", x, channels);
    if (channels == unet_.channels.front()) return h;
    const Image spatial = attention(name + ".attention.spatial", h, false, {});
    return attention(name + ".attention.temporal", spatial, true,
                     WeightSource::Share{name + ".attention.time_mixer.mix_factor", true});
  }

  // Its share of the blend is in the projection's weights, as blocks.cpp has it.
  Image attention(const std::string& name, const Image& x, bool along_frames,
                  const std::optional<WeightSource::Share>& share) {
    const Image normed = layers_.norm(name + ".norm", x, {.groups = unet_.groups, .eps = 1e-6, .silu = false});
    const Image qkv = layers_.linear(name + ".qkv", normed, 3 * x.channels);
    const Image mixed = layers_.attention(name, qkv, x.channels / unet_.head_channels, along_frames ? frames_ : 0);
    return layers_.linear(name + ".proj", mixed, x.channels, {.residual = x.id, .share = share});
  }

  const MovingUNet& unet_;
  Layers& layers_;  // of frames
  Layers videos_;   // of what is embedded of videos
  std::int64_t frames_;
  Embedding embedding_;
};

}  // namespace

void build_moving_unet(const MovingUNet& unet, const BuildOptions& options, Network& network) {
  build_preconditioned(options, network, kSigmaData, [&](Layers& layers, ValueId c_noise, Image x) {
    MovingDigitsBuilder builder(unet, network, layers);
    builder.embed(network, c_noise);
    x.id = layers.cast("input", x.id, options.dtype);
    return builder.build(x, x.channels);
  });
}

NetworkInfo moving_digits_row() {
  return {.name = "moving-digits",
          .description = "a small video network of moving digits, 16 frames of 16x16; its weights come with noisefloor",
          .prediction = sampler_step::Prediction::x0,
          .image = {16, 16, 1, 16},
          .divisor = 4,
          .most_frames = 32,
          .classes = 10,
          .label_weight = "model.class_embedding.weight",
          .parameters = 619'705,
          .shipped = true,
          .schedule = sampler_step::Schedule::karras,
          .solver = sampler_step::Solver::dpmpp_2m,  // its videos of 12 steps are as good as of 18
          .steps = 12,
          .guidance = 3,
          .builder = [](const BuildOptions& options, Network& network) { build_moving_unet({}, options, network); }};
}

}  // namespace noisefloor::networks
