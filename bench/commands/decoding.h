// Pictures of the latents that a network has drawn, by the decoder of its row.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "bench/commands/pipeline_common.h"

namespace noisefloor {

class Decoding {
 public:
  // Of latents of that shape, with the weights of arguments.weights, which are not looked at yet. Of a video `chunk`
  // frames at a time, and then the rest; 0: as many as fit into the memory that is free, all if they do. Frames do not
  // see those of another chunk.
  Decoding(const networks::NetworkInfo& decoder, const NetworkArguments& arguments, const networks::ImageShape& latents,
           std::shared_ptr<Platform> platform, std::int64_t chunk = 0);

  networks::ImageShape picture() const;
  std::int64_t chunk() const { return parts_.front().network->image.frames; }
  void check_weights() { parts_.front().check_weights(); }
  void say_what_is_read() const { parts_.front().say_what_is_read(arguments_.verbose); }
  std::size_t bytes() const { return bytes_; }  // of device memory, as rehearsed
  // Plans, and allocates all that run() will; then gives the memory back. So what would keep pictures from being made
  // is known before an hour of sampling. Throws what start_network does.
  void rehearse();
  // Pictures of all latents, one at a time: whoever draws many images does it in one batch because the U-Net is faster
  // so, and a decoder's activations are the largest. Where that fails, writes the latents to `rescue`, says so on
  // stderr, and throws on.
  std::vector<float> run(const std::vector<float>& latents, std::int64_t first_image,
                         const std::filesystem::path& rescue);

 private:
  std::vector<float> decode(const std::vector<float>& latents, std::int64_t first_image);

  NetworkArguments arguments_;
  networks::ImageShape latents_;
  std::vector<OpenNetwork> parts_;  // of a chunk of frames; of the rest of a video, where there is one
  std::size_t bytes_ = 0;
};

}  // namespace noisefloor
