// Pictures of the latents that a network has drawn, by the decoder of its row.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <vector>

#include "bench/pipeline/model.h"

namespace noisefloor::pipeline {

class Decoding {
 public:
  // Of latents of that shape. Of a video `chunk` frames at a time, and then the rest; 0: as many as fit into the memory
  // that is free, all if they do. Frames do not see those of another chunk.
  Decoding(const NetworkInfo& decoder, const ModelRequest& request, const ImageShape& latents, Device device,
           std::int64_t chunk = 0);

  ImageShape picture() const;
  std::int64_t chunk() const { return parts_.front().network.image.frames; }
  Model& model() { return parts_.front(); }     // of a chunk
  std::size_t bytes() const { return bytes_; }  // of device memory, as rehearsed
  // Plans, and allocates all that run() will; then gives the memory back. So what would keep pictures from being made
  // is known before an hour of sampling. Throws what RunningModel does.
  void rehearse();
  // Pictures of all latents, one at a time: whoever draws many images does it in one batch because the U-Net is faster
  // so, and a decoder's activations are the largest. Where that fails the device is as it was; then `rescue` gets the
  // latents, and the error is thrown on.
  using Rescue = std::function<void(const std::vector<float>& latents)>;
  std::vector<float> run(const std::vector<float>& latents, std::int64_t first_image, const Rescue& rescue = {});

 private:
  // A part's frames of each video.
  void decode(Model& part, const std::vector<float>& latents, std::vector<float>& pictures);

  ImageShape latents_;
  std::deque<Model> parts_;  // of a chunk of frames; of the rest of a video, where there is one
  std::size_t bytes_ = 0;
};

}  // namespace noisefloor::pipeline
