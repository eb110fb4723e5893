// Pictures of latents: what is tried before a network samples, and what becomes of its latents where decoding fails.
#include "bench/pipeline/decoding.h"

#include <gtest/gtest.h>

#include "bench/pipeline/network_tensors.h"
#include "bench/sweep/suite.h"
#include "tests/support/host_platforms.h"
#include "tests/support/recorded_tensors.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

constexpr std::int64_t kHeight = 5, kWidth = 7;
constexpr std::size_t kEnough = std::size_t{64} << 20;

// Two videos, decoded `chunk` frames at a time.
struct Video {
  explicit Video(std::int64_t chunk, std::size_t bytes = kEnough) : platform(bytes) {
    write_weights_by_rule(folder / "w.safetensors", info.build({}).graph);
    decoding.emplace(info, request(), info.image, Device{platform, suite()}, chunk);
    latents.resize(static_cast<std::size_t>(2 * info.image.elements()));
    platform.fill_normal(DType::fp32, latents.data(), std::ssize(latents), 0, 1, 7);
  }
  ModelRequest request() const {
    return {.network = "", .weights = folder / "w.safetensors", .dtype = DType::fp32, .plan = "naive"};
  }
  std::vector<float> drawn() { return decoding->run(latents, 0); }
  // Of both videos, frames [first, first + count).
  static std::vector<float> frames_of(const std::vector<float>& all, std::int64_t first, std::int64_t count) {
    std::vector<float> some;
    const std::ptrdiff_t video = std::ssize(all) / 2;
    for (auto begin = all.begin(); begin != all.end(); begin += video)
      some.insert(some.end(), begin + first * video / 5, begin + (first + count) * video / 5);
    return some;
  }
  TemporaryFolder folder;
  NetworkInfo info = small_video_decoder(5);
  LimitedPlatform platform;
  std::optional<Decoding> decoding;
  std::vector<float> latents;
};

struct Small {
  explicit Small(std::size_t bytes = kEnough) : platform(bytes) {}
  NetworkInfo info = small_decoder(kHeight, kWidth);
  LimitedPlatform platform;
  Decoding decoding{
      info,
      {.network = "", .weights = "tests/bench/pipeline/small_vae.safetensors", .dtype = DType::fp32, .plan = "naive"},
      info.image,
      {platform, suite()}};
};

const SafetensorsFile& recorded() {
  static const SafetensorsFile file("tests/bench/pipeline/small_pipeline.safetensors");
  return file;
}

std::vector<float> two_latents() {
  return recorded_images(recorded(), "x");
}

TEST(Decoding, IsTriedFirstAndLeavesNothingOnTheDevice) {
  Small small;
  EXPECT_EQ(small.decoding.picture().height, 4 * kHeight);
  small.decoding.rehearse();
  EXPECT_EQ(small.platform.free_bytes(), kEnough);
  bool rescued = false;
  const std::vector<float> pictures =
      small.decoding.run(two_latents(), 0, [&](const std::vector<float>&) { rescued = true; });
  EXPECT_LE(distance(pictures, recorded_images(recorded(), "output")), 1e-5);
  EXPECT_FALSE(rescued);
}

// Somebody else took the memory meanwhile.
TEST(Decoding, ThatFailsKeepsTheLatents) {
  Small small;
  small.decoding.rehearse();
  void* const taken = small.platform.allocate(kEnough - 1000);
  std::vector<float> kept;
  std::size_t free = 0;
  EXPECT_THROW((void)small.decoding.run(two_latents(), 0,
                                        [&](const std::vector<float>& latents) {
                                          kept = latents;
                                          free = small.platform.free_bytes();
                                        }),
               OutOfMemory);
  EXPECT_EQ(kept, two_latents());
  EXPECT_EQ(free, 1000u);
  small.platform.release(taken);
}

TEST(Decoding, OfAVideoTakesAChunkAtATimeAndThenTheRest) {
  for (const std::int64_t chunk : {1, 2, 5, 9}) {
    Video video(chunk);
    EXPECT_EQ(video.decoding->chunk(), std::min<std::int64_t>(chunk, 5));
    EXPECT_EQ(video.decoding->picture().frames, 5);
    video.decoding->rehearse();
    EXPECT_GT(video.decoding->bytes(), 0u);
    EXPECT_EQ(video.platform.free_bytes(), kEnough);
    const std::vector<float> pictures = video.drawn();
    // Each chunk is what a video of those frames alone is.
    for (std::int64_t first = 0; first < 5; first += chunk) {
      const std::int64_t count = std::min(chunk, 5 - first);
      ImageShape alone = video.info.image;
      alone.frames = count;
      EXPECT_EQ(Decoding(video.info, video.request(), alone, {video.platform, suite()})
                    .run(Video::frames_of(video.latents, first, count), 0),
                Video::frames_of(pictures, first, count))
          << chunk << ", " << first;
    }
  }
}

// As few parts as fit, as equal as they can be.
TEST(Decoding, OfAVideoTakesWhatFits) {
  Video all(0);
  EXPECT_EQ(all.decoding->chunk(), 5);
  all.decoding->rehearse();
  Video less(0, all.decoding->bytes() - 1);
  EXPECT_EQ(less.decoding->chunk(), 3);
  less.decoding->rehearse();
  EXPECT_LT(less.decoding->bytes(), all.decoding->bytes());
  EXPECT_EQ(less.drawn().size(), all.drawn().size());
  Video none(0, 1 << 16);
  EXPECT_EQ(none.decoding->chunk(), 1);
  EXPECT_THROW(none.decoding->rehearse(), OutOfMemory);
}

}  // namespace
}  // namespace noisefloor::pipeline
