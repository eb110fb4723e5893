// The decoders of latent diffusion's autoencoders, as diffusers' AutoencoderKL and AutoencoderKLTemporalDecoder have
// them. Its configuration is what the networks' rows, and small ones of tests, differ in.
#pragma once

#include <cstdint>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

struct Decoder {
  std::vector<std::int64_t> channels;  // of the levels, the first at the picture's size; each half as large as the last
  int blocks = 3;                      // residual ones of a level
  int groups = 32;
  std::int64_t picture_channels = 3;
  bool temporal = false;  // of videos: each residual block has a second one along the frames behind it

  std::int64_t enlarges() const { return std::int64_t{1} << (channels.size() - 1); }
};

// Takes x, latents as a U-Net of them makes them [n, height, width, channels]; gives the picture. Of videos [n, frames,
// height, width, channels].
void build_decoder(const Decoder& decoder, const BuildOptions& options, Network& network);
std::vector<ConfiguredAs> configuration_of(const Decoder& decoder);

}  // namespace noisefloor::networks
