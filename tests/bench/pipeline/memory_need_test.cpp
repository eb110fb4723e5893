// A batch that does not fit is refused with the largest that does.
#include "bench/pipeline/executor.h"

#include <gtest/gtest.h>

#include <regex>

#include "bench/pipeline/model.h"
#include "bench/pipeline/sampling.h"
#include "bench/sweep/suite.h"
#include "tests/support/host_platforms.h"
#include "tests/support/refusal.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr std::size_t kMemory = std::size_t{96} << 20;

// Opens digits with a sampler beside it in little memory; returns what a want of it says, or "".
std::string open_digits(std::int64_t batch, bool guided = false, std::int64_t hoisted_levels = 0) {
  const SamplingOptions options{.steps = 4, .guidance = guided ? 2.0 : 0.0};
  LimitedPlatform platform(kMemory);
  Model model(
      {.row = require_network("digits")}, {.network = "digits", .weights = "bench/pipeline/weights/digits.safetensors"},
      {.batch = batch, .sampling = true, .guided = guided, .hoisted_levels = hoisted_levels}, {platform, suite()});
  return refusal_of<OutOfMemory>([&] {
    RunningModel running(model, [&](const Network& network) { return sampler_bytes(network, options); });
    running.make([&] { Sampler(platform, running.executor(), options); });
  });
}

std::int64_t batch_in(const std::string& message) {
  std::smatch found;
  return std::regex_search(message, found, std::regex("a batch of (\\d+) would")) ? std::stoll(found[1]) : 0;
}

TEST(MemoryNeed, SaysTheLargestBatchThatFits) {
  for (const bool guided : {false, true})
    for (const std::int64_t levels : {0, 7}) {
      const std::string message = open_digits(4096, guided, levels);
      EXPECT_NE(message.find("a batch of 4096 does not fit"), std::string::npos) << message;
      const std::int64_t fits = batch_in(message);
      ASSERT_GT(fits, 0) << message;
      EXPECT_EQ(open_digits(fits, guided, levels), "");
      EXPECT_NE(open_digits(fits + fits / 10 + 1, guided, levels), "") << "so would many more than " << fits;
    }
}

// One video of fewer frames, where not even one of so many fits.
TEST(MemoryNeed, SaysTheMostFramesThatFit) {
  NetworkInfo info = small_network("svd", kSmallSvd);
  info.image.frames = 14;
  const TemporaryFolder folder;
  write_weights_by_rule(folder / "w.safetensors", info.build({}).graph);
  const ModelRequest request{
      .network = "svd", .weights = folder / "w.safetensors", .dtype = DType::fp32, .plan = "naive"};
  const auto said = [&](std::int64_t frames, std::size_t bytes) {
    LimitedPlatform platform(bytes);
    Model model({.row = info}, request, {.sampling = true, .guided = true, .sizes = {.frames = frames}},
                {platform, suite()});
    return refusal_of<OutOfMemory>([&] { RunningModel{model}; });
  };
  const Network five = info.build({.dtype = DType::fp32, .sampling = true, .guided = true, .sizes = {.frames = 5}});
  const std::size_t bytes =
      *executor_bytes(five, make_host_platform()->description(), [](std::size_t) { return nullptr; });
  const std::string message = said(14, bytes);
  EXPECT_NE(message.find("no batch of 14 frames would; of one video 5 frames would"), std::string::npos) << message;
  EXPECT_EQ(said(5, bytes), "");
  EXPECT_NE(said(14, 1000).find("no batch would"), std::string::npos);
}

// No more than the ops take: conv2d's n.
TEST(MemoryNeed, IsOfTheLargestThatFits) {
  const auto up_to = [](std::int64_t most) { return [most](std::int64_t batch) { return batch <= most; }; };
  EXPECT_EQ(largest_fitting(64, up_to(0)), 0);
  EXPECT_EQ(largest_fitting(64, up_to(5)), 5);
  EXPECT_EQ(largest_fitting(64, up_to(64)), 63);
  const auto built = [](std::int64_t batch) { return require_network("digits").build({.batch = batch}).batch > 0; };
  EXPECT_EQ(largest_fitting(1 << 20, built), 32767);
}

}  // namespace
}  // namespace noisefloor
