// U-Nets of others' programs that train from end to end here, by their widths: as those have them, and narrow ones for
// tests.
#pragma once

#include <cstdint>
#include <vector>

#include "networks/network.h"

namespace noisefloor::networks {

// Of convolutions and ReLU alone, under the preconditioning of Karras et al. (mnist_unet.cpp).
struct ReluUNet {
  std::vector<std::int64_t> channels{64, 128, 256};  // of the levels, each half as large as the one before
  std::int64_t embedding = 256;
  double sigma_data = 0.5;
};
void build_relu_unet(const ReluUNet& unet, const BuildOptions& options, Network& network);

// ADM's (adm.cpp), whose levels have 1, 2, 3, ... times as many channels.
struct AdmUNet {
  std::int64_t channels = 192;
  int levels = 4, blocks = 3;
  int first_attention = 1;  // level: of a picture of 64x64 at 32x32, 16x16 and 8x8
  std::int64_t head_channels = 64;
  int groups = 32;
  bool of_unetcu = false;  // as unet.cu has it, also in its names
};
void build_adm(const AdmUNet& unet, const BuildOptions& options, Network& network);

// moving-digits (moving_digits.cpp): attention on all levels but the first.
struct MovingUNet {
  std::vector<std::int64_t> channels{16, 32, 96};  // of the levels, each half as large as the one before
  std::int64_t head_channels = 32;
  int groups = 8;
};
void build_moving_unet(const MovingUNet& unet, const BuildOptions& options, Network& network);

}  // namespace noisefloor::networks
