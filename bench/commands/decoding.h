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
  // Of latents of that shape, with the weights of arguments.weights, which are not looked at yet.
  Decoding(const networks::NetworkInfo& decoder, const NetworkArguments& arguments, const networks::ImageShape& latents,
           std::shared_ptr<Platform> platform);

  networks::ImageShape picture() const;
  void check_weights() { open_.check_weights(); }
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
  OpenNetwork open_;
};

}  // namespace noisefloor
