// A batch that does not fit is refused with the largest that does.
#include "bench/pipeline/memory_need.h"

#include <gtest/gtest.h>

#include <regex>

#include "bench/commands/pipeline_common.h"
#include "bench/pipeline/sampling.h"
#include "tests/support/limited_platform.h"

namespace noisefloor {
namespace {

using namespace networks;
using namespace pipeline;

constexpr std::size_t kMemory = std::size_t{96} << 20;

// Opens digits with a sampler beside it in little memory; returns what a want of it says, or "".
std::string open_digits(std::int64_t batch, bool guided = false) {
  NetworkArguments arguments;
  arguments.network = "digits";
  arguments.weights = "bench/pipeline/weights/digits.safetensors";
  const SamplingOptions options{.steps = 4, .guidance = guided ? 2.0 : 0.0};
  OpenNetwork open;
  std::optional<Sampler> sampler;
  const Beside beside{[&](const Network& network) { return sampler_bytes(network, options); },
                      [&](OpenNetwork& opened) { sampler.emplace(*opened.platform, *opened.executor, options); }};
  try {
    open = open_network(
        arguments, {.batch = batch, .sampling = true, .guided = guided}, [](const Network&) {}, beside,
        std::make_unique<LimitedPlatform>(kMemory));
    return "";
  } catch (const OutOfMemory& error) {
    return error.what();
  }
}

std::int64_t batch_in(const std::string& message) {
  std::smatch found;
  return std::regex_search(message, found, std::regex("a batch of (\\d+) would")) ? std::stoll(found[1]) : 0;
}

TEST(MemoryNeed, SaysTheLargestBatchThatFits) {
  for (const bool guided : {false, true}) {
    const std::string message = open_digits(4096, guided);
    EXPECT_NE(message.find("a batch of 4096 does not fit"), std::string::npos) << message;
    const std::int64_t fits = batch_in(message);
    ASSERT_GT(fits, 0) << message;
    EXPECT_EQ(open_digits(fits, guided), "");
    EXPECT_NE(open_digits(fits + fits / 10 + 1, guided), "") << "so would many more than " << fits;
  }
}

TEST(MemoryNeed, SaysThatNoBatchFits) {
  const auto nothing = [](const Network&) -> std::optional<std::size_t> { return 1000; };
  EXPECT_EQ(largest_fitting(require_network("digits"), {.batch = 64}, 999, nothing), 0);
  EXPECT_EQ(largest_fitting(require_network("digits"), {.batch = 64}, 1000, nothing), 63);
}

TEST(MemoryNeed, KeepsToWhatTheOpsTake) {
  const auto one = [](const Network&) -> std::optional<std::size_t> { return 1; };
  const auto none = [](const Network&) -> std::optional<std::size_t> { return std::nullopt; };
  EXPECT_EQ(largest_fitting(require_network("digits"), {.batch = 1 << 20}, 1, one), 32767);  // conv2d's n
  EXPECT_EQ(largest_fitting(require_network("digits"), {.batch = 1 << 20}, 1, none), 0);
}

}  // namespace
}  // namespace noisefloor
