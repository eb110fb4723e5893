// The folder of a diffusers pipeline with a small U-Net, for what stands beside its weights.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>

#include "bench/pipeline/sample_request.h"
#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {

// Of a diffusers pipeline, with the small U-Net of sd15 or sdxl.
class CheckpointFolder {
 public:
  explicit CheckpointFolder(const std::string& network = "sd15") : network_(network) {
    std::filesystem::create_directories(path() / "unet");
    std::filesystem::create_directories(path() / "scheduler");
    std::filesystem::copy_file(std::filesystem::path("tests/bench/pipeline") /
                                   (network == "sd15" ? "small_unet.safetensors" : "small_sdxl.safetensors"),
                               path() / "unet/diffusion_pytorch_model.safetensors");
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  void write(const std::string& file, const std::string& text) const { std::ofstream(path() / file) << text; }
  void schedule(const pipeline::ConfigFile::Json& config) const {
    write("scheduler/scheduler_config.json", config.dump());
  }
  networks::NetworkInfo row() const {
    return networks::small_network(network_.c_str(), network_ == "sd15" ? networks::kSmall : networks::kSmallXl);
  }

  pipeline::SampleArguments arguments() const {
    return {.model = {.network = network_, .weights = path().string(), .dtype = DType::fp32, .plan = "naive"},
            .conditioning = path() / "told.safetensors"};
  }
  pipeline::CheckpointSettings settings(const pipeline::GivenOptions& given = {}) const {
    return pipeline::checkpoint_settings(row(), pipeline::checkpoint_file(path()), true, given);
  }
  std::string refusal(const pipeline::GivenOptions& given = {}) const {
    return refusal_of([&] { return settings(given); });
  }

 private:
  std::string network_;
  TemporaryFolder folder_;
};

}  // namespace noisefloor
