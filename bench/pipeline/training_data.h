// What a network is trained on: labelled images in memory, as files have them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "networks/network.h"

namespace noisefloor::pipeline {

using namespace networks;

struct TrainingData {
  std::int64_t count = 0;
  std::vector<float> images;  // channels-last [count, frames, height, width, channels], -1 to 1
  std::vector<float> labels;  // class numbers [count]; empty of a network without classes

  std::string fingerprint() const;
};

// The name, in the place of a file, of pictures that are drawn at random.
inline constexpr const char* kGenerated = "generated";

// Files of images, one behind the other, each told by its content: safetensors with `images` [n, c, h, w] of -1 to 1,
// or of videos [n, frames, c, h, w], and `labels` [n]; IDX, of bytes: images [n, h, w], behind them their labels [n],
// where MNIST's of 28x28 get a frame of black for a network of 32x32; CIFAR-10's binary version; unet.cu's data,
// without labels. Throws InvalidInput that names the file and what is wrong with it: another kind or size of file,
// images of another shape than the network's, a number out of range, labels that are missing or of no class.
TrainingData read_training_data(std::span<const std::string> files, const NetworkInfo& info);

}  // namespace noisefloor::pipeline
