// The networks of diffusers' pipelines at a width that a host runs at once, as the scripts beside the tests of
// bench/pipeline have them.
#pragma once

#include "networks/diffusers.h"
#include "networks/network.h"

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

}  // namespace noisefloor::networks
