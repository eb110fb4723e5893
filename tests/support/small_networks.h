// The networks of diffusers' pipelines at a width that a host runs at once, as the scripts beside the tests of
// bench/pipeline have them.
#pragma once

#include "networks/diffusers.h"
#include "networks/layers.h"
#include "networks/network.h"
#include "networks/trained_unets.h"

namespace noisefloor::networks {

// SMALL, SMALL_XL and SMALL_SVD of diffusers_unet.py.
inline const UNet kSmall{.levels = {{16, 2, 1}, {32, 2, 0}}, .blocks = 1, .text_width = 24, .groups = 8};
inline const UNet kSmallXl{
    .levels = {{8, 2, 0}, {16, 4, 2}},
    .middle_transformer_blocks = 2,
    .blocks = 1,
    .text_width = 24,
    .groups = 4,
    .linear_projection = true,
    .added = {.vector = "text_embeds", .vector_width = 20, .numbers = "time_ids", .count = 6, .width = 8}};
inline const UNet kSmallSvd{.levels = {{32, 2}, {64, 4, 0}},
                            .blocks = 1,
                            .text_width = 24,
                            .linear_projection = true,
                            .added = {.numbers = "added_time_ids", .count = 3, .width = 8}};

// A row of sd15, sdxl or svd with such a U-Net.
inline NetworkInfo small_network(const char* row, const UNet& unet) {
  NetworkInfo info = require_network(row);
  const bool videos = info.most_frames > 1;
  info.name = "small";
  info.image = videos ? ImageShape{4, 6, 4, 3} : ImageShape{8, 12, 4};
  info.divisor = unet.divisor();
  if (info.tokens > 0) info.tokens = 5;
  info.configuration = configuration_of(unet, videos);
  info.builder = [unet, videos](const BuildOptions& options, Network& network) {
    videos ? build_video_unet(unet, options, network) : build_unet(unet, options, network);
  };
  return info;
}

inline NetworkInfo small_decoder_of(const char* row, const ImageShape& latents, std::int64_t enlarges,
                                    const Decoder& decoder) {
  NetworkInfo info = require_network(row);
  info.name = "small";
  info.image = latents;
  info.enlarges = enlarges;
  info.configuration = configuration_of(decoder);
  info.builder = [decoder](const BuildOptions& options, Network& network) { build_decoder(decoder, options, network); };
  return info;
}

// SMALL_VAE of diffusers_pipeline.py.
inline NetworkInfo small_decoder(std::int64_t height, std::int64_t width) {
  return small_decoder_of("sd-vae", {height, width, 4}, 4, {.channels = {8, 16, 16}, .blocks = 2, .groups = 4});
}

// SMALL_SVD_VAE of diffusers_unet.py.
inline NetworkInfo small_video_decoder(std::int64_t frames = 3) {
  return small_decoder_of("svd-vae", {4, 6, 4, frames}, 2, {.channels = {32, 64}, .temporal = true});
}

// Of no square, with frames and text: its row and its builder are all that there is to write of a network.
inline void build_video(const BuildOptions& options, Network& network) {
  const auto& [height, width, channels, frames] = network.image;
  const ValueId x =
      network.take("x", NetworkTensor::Kind::image, {network.batch, frames, height, width, channels}, DType::fp32);
  network.take("sigma", NetworkTensor::Kind::sigma, {network.calls}, DType::fp32);
  network.take("words", NetworkTensor::Kind::text, {network.calls, options.sizes.tokens, 8}, options.dtype);
  const ValueId context = network.take("context", NetworkTensor::Kind::conditioning, {network.calls, 8}, options.dtype);
  Layers layers(network.graph, network.batch * frames, options.dtype);
  const Image in{layers.cast("in", x, options.dtype), height, width, channels};
  Image h = layers.conv("first", in, 16, 3);
  layers.of(network.batch).linear("context", {context, 1, 1, 8}, 16);
  h = layers.downsample("down", h);
  h = layers.conv("up", h, channels, 3, {.upsample = true});
  network.give("output", layers.cast("out", h.id, DType::fp32), {network.calls, frames, h.height, h.width, channels});
}

inline NetworkInfo video() {
  return {.name = "video",
          .description = "of test code",
          .prediction = sampler_step::Prediction::v,
          .image = {6, 10, 4, 3},
          .divisor = 2,
          .most_frames = 25,
          .tokens = 5,
          .most_tokens = 77,
          .schedule = sampler_step::Schedule::scaled_linear,
          .builder = build_video};
}

// What a training step has of kinds of nodes, on images of 4 x 4: EDM's blocks, whose second norm also scales and
// shifts as ADM's does.
class TrainedBuilder {
 public:
  TrainedBuilder(Layers& layers, ValueId c_noise, ValueId labels) : layers_(layers) {
    embedding_ = layers.waves("waves", c_noise, 8);
    embedding_ = layers.linear("label", {labels, 1, 1, 3}, 8, {.scale = 1.5, .residual = embedding_.id});
    embedding_ = layers.linear("embed", embedding_, 8, {.act = "silu"});
  }

  Image block(const std::string& name, const Image& x, std::int64_t cout, bool up = false) {
    Image h = layers_.norm(name + ".norm0", x, {.groups = 2});
    const Image shift = layers_.linear(name + ".shift", embedding_, cout);
    h = layers_.conv(name + ".conv0", h, cout, 3, {.upsample = up, .image_shift = shift.id});
    const Image both = layers_.linear(name + ".both", embedding_, 2 * cout);
    h = layers_.norm(name + ".norm1", h, {.groups = 4, .scale_shift = both.id});
    Image skip = up ? layers_.upsample(name + ".up", x) : x;
    if (x.channels != cout) skip = layers_.conv(name + ".skip", skip, cout, 1);
    return layers_.conv(name + ".conv1", h, cout, 3, {.residual = skip.id, .gain = 0.7});
  }

  Image build(const Image& x) {
    const Image first = layers_.conv("in", x, 8, 3), kept = block("first", first, 8);
    Image h = block("second", layers_.downsample("down", kept), 12);
    const Image qkv = layers_.linear("qkv", layers_.norm("norm", h, {.groups = 2, .silu = false}), 36,
                                     {.layout = WeightSource::Layout::hd3_to_3hd});
    h = layers_.conv("proj", layers_.attention("attention", qkv, 2), 12, 1, {.residual = h.id, .gain = 0.7});
    h = layers_.concat("cat", block("third", h, 8, true), kept);
    return layers_.conv("out", block("last", h, 8), x.channels, 3);
  }

 private:
  Layers& layers_;
  Image embedding_;
};

inline NetworkInfo small_trained() {
  return {.name = "small",
          .description = "of test code",
          .prediction = sampler_step::Prediction::x0,
          .image = {4, 4, 2},
          .divisor = 2,
          .classes = 3,
          .schedule = sampler_step::Schedule::karras,
          .builder = [](const BuildOptions& options, Network& network) {
            build_preconditioned(options, network, 0.5, [&](Layers& layers, ValueId c_noise, Image x) {
              x.id = layers.cast("input", x.id, options.dtype);
              return TrainedBuilder(layers, c_noise, network.labels()).build(x);
            });
          }};
}

// mnist-unet and unetcu, narrow and of two levels.
inline NetworkInfo small_relu_unet() {
  NetworkInfo info = small_trained();
  info.builder = [](const BuildOptions& options, Network& network) {
    build_relu_unet({.channels = {8, 12}, .embedding = 8}, options, network);
  };
  return info;
}

inline NetworkInfo small_pooling_unet() {
  NetworkInfo info = small_trained();
  info.prediction = sampler_step::Prediction::noise;
  info.classes = 0;
  info.schedule = sampler_step::Schedule::linear;
  info.builder = [](const BuildOptions& options, Network& network) {
    build_adm({.channels = 8, .levels = 2, .blocks = 1, .head_channels = 4, .groups = 4, .of_unetcu = true}, options,
              network);
  };
  return info;
}

// moving-digits, narrow and of two levels, with attention of two heads.
inline NetworkInfo small_moving_unet() {
  NetworkInfo info = small_trained();
  info.image.frames = 3;
  info.most_frames = 8;
  info.builder = [](const BuildOptions& options, Network& network) {
    build_moving_unet({.channels = {8, 16}, .head_channels = 8, .groups = 4}, options, network);
  };
  return info;
}

}  // namespace noisefloor::networks
