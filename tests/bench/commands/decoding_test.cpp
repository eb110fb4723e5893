// Pictures of latents: what is tried before a network samples, and what becomes of its latents where decoding fails.
#include "bench/commands/decoding.h"

#include <gtest/gtest.h>

#include "networks/vae.h"
#include "tests/support/limited_platform.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/temporary_folder.h"

namespace noisefloor {
namespace {

using namespace networks;

constexpr std::int64_t kHeight = 5, kWidth = 7;
constexpr std::size_t kEnough = std::size_t{64} << 20;

// As SMALL_VAE of tests/bench/pipeline/diffusers_pipeline.py.
NetworkInfo small_decoder() {
  NetworkInfo info = require_network("sd-vae");
  info.name = "small";
  info.image = {kHeight, kWidth, 4};
  info.enlarges = 4;
  info.builder = [](const BuildOptions& options, Network& network) {
    build_decoder({.channels = {8, 16, 16}, .latent_scale = 0.18215, .blocks = 2, .groups = 4}, options, network);
  };
  return info;
}

struct Small {
  explicit Small(std::size_t bytes = kEnough) : platform(std::make_shared<LimitedPlatform>(bytes)) {
    NetworkArguments arguments;
    arguments.weights = "tests/bench/pipeline/small_vae.safetensors";
    arguments.dtype = "fp32";
    arguments.plan = "naive";
    decoding.emplace(info, arguments, info.image, platform);
  }
  NetworkInfo info = small_decoder();
  std::shared_ptr<LimitedPlatform> platform;
  std::optional<Decoding> decoding;
};

const SafetensorsFile& recorded() {
  static const SafetensorsFile file("tests/bench/pipeline/small_pipeline.safetensors");
  return file;
}

std::vector<float> two_latents() {
  return channels_last_of(recorded_numbers(recorded(), "x"), 4, kHeight * kWidth);
}

TEST(Decoding, IsTriedFirstAndLeavesNothingOnTheDevice) {
  Small small;
  EXPECT_EQ(small.decoding->picture().height, 4 * kHeight);
  small.decoding->rehearse();
  EXPECT_EQ(small.platform->free_bytes(), kEnough);
  const TemporaryFolder folder;
  const std::vector<float> pictures = small.decoding->run(two_latents(), 0, folder / "rescue");
  EXPECT_LE(distance(pictures, channels_last_of(recorded_numbers(recorded(), "output"), 3, 16 * kHeight * kWidth)),
            1e-5);
  EXPECT_FALSE(std::filesystem::exists(folder / "rescue"));
}

TEST(Decoding, IsRefusedBeforeAnythingIsDrawn) {
  Small small(1 << 16);
  EXPECT_THROW(small.decoding->rehearse(), OutOfMemory);
}

// Somebody else took the memory meanwhile.
TEST(Decoding, ThatFailsKeepsTheLatents) {
  Small small;
  small.decoding->rehearse();
  void* const taken = small.platform->allocate(kEnough - 1000);
  const TemporaryFolder folder;
  const std::filesystem::path rescue = folder / "picture.png.latents.safetensors";
  EXPECT_THROW((void)small.decoding->run(two_latents(), 0, rescue), OutOfMemory);
  const SafetensorsFile kept(rescue);
  EXPECT_EQ(kept.find("x")->shape, (std::vector<std::int64_t>{2, 4, kHeight, kWidth}));
  EXPECT_EQ(recorded_numbers(kept, "x"), recorded_numbers(recorded(), "x"));
  EXPECT_NO_THROW(kept.require_layout("channels-first"));
  // Nor does a folder that is gone hide why.
  EXPECT_THROW((void)small.decoding->run(two_latents(), 0, folder / "gone" / "rescue"), OutOfMemory);
  small.platform->release(taken);
}

}  // namespace
}  // namespace noisefloor
