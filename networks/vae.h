// The decoder of latent diffusion's autoencoder, as diffusers' AutoencoderKL has it. Its configuration is what the
// networks' rows, and a small one of tests, differ in.
#pragma once

#include <cstdint>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

struct Decoder {
  std::vector<std::int64_t> channels;  // of the levels, the first at the picture's size; each half as large as the last
  double latent_scale = 1;             // that the latents were multiplied by
  int blocks = 3;                      // residual ones of a level
  int groups = 32;
  std::int64_t picture_channels = 3;

  std::int64_t enlarges() const { return std::int64_t{1} << (channels.size() - 1); }
};

// Takes x, latents as a U-Net of them makes them [n, height, width, channels]; gives the picture.
void build_decoder(const Decoder& decoder, const BuildOptions& options, Network& network);

}  // namespace noisefloor::networks
