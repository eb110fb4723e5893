// diffusers' networks by their configurations, which tell Stable Diffusion's versions apart, and small ones of tests
// from them: U-Nets of latents, of images (UNet2DConditionModel: residual blocks, and transformers that read text) and
// of videos (UNetSpatioTemporalConditionModel); and decoders of latents (AutoencoderKL, AutoencoderKLTemporalDecoder).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

struct UNet {
  struct Level {
    std::int64_t channels = 0;
    std::int64_t heads = 8;
    int transformer_blocks = 1;  // of each transformer; 0: the level has none
  };

  // What is embedded beside the timestep: a vector, and behind it numbers, each embedded as a timestep is.
  struct Added {
    const char* vector = "";  // the input's name: [n, vector_width]
    std::int64_t vector_width = 0;
    const char* numbers = "";  // [n, count]
    std::int64_t count = 0;    // 0: nothing is added
    std::int64_t width = 256;  // of a number's embedding
  };

  std::vector<Level> levels;          // the first at the latent's size, each half as large as the one before
  int middle_transformer_blocks = 1;  // of the transformer at the bottom, which is otherwise as the last level's
  int blocks = 2;                     // residual ones of a level on the way down; one more on the way up
  std::int64_t text_width = 768;
  int groups = 32;
  bool linear_projection = false;  // of transformers
  Added added = {};

  std::int64_t divisor() const { return std::int64_t{1} << (levels.size() - 1); }  // of heights and widths
};

// Takes x, timesteps, encoder_hidden_states [n, tokens, text_width] and what is added; gives the noise. Of a sampler:
// sigma too.
void build_unet(const UNet& unet, const BuildOptions& options, Network& network);
std::string configuration_of(const UNet& unet, bool videos = false);  // NetworkInfo::configuration

// Takes x = x0 + sigma noise of 4 channels, sigma, image_latents of the same shape as x, encoder_hidden_states
// [n, 1, text_width] and what is added; gives v. The original takes the same with x / sqrt(sigma^2 + 1) for x and
// timesteps log(sigma) / 4 for sigma.
void build_video_unet(const UNet& unet, const BuildOptions& options, Network& network);

struct Decoder {
  std::vector<std::int64_t> channels;  // of the levels, the first at the picture's size; each half as large as the last
  int blocks = 3;                      // residual ones of a level
  int groups = 32;
  bool temporal = false;  // of videos: each residual block has a second one along the frames behind it

  std::int64_t enlarges() const { return std::int64_t{1} << (channels.size() - 1); }
};

// Takes x, latents as a U-Net of them makes them [n, height, width, channels]; gives the picture. Of videos [n, frames,
// height, width, channels].
void build_decoder(const Decoder& decoder, const BuildOptions& options, Network& network);
std::string configuration_of(const Decoder& decoder);

}  // namespace noisefloor::networks
