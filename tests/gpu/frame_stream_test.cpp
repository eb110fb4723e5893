// Calls that are not whole, and frames that follow each other, on the device: what recordings and programmatic launch
// must not change.
#include "bench/pipeline/frame_stream.h"

#include <gtest/gtest.h>

#include "bench/sweep/suite.h"
#include "networks/network.h"

namespace noisefloor::pipeline {
namespace {

// A network with random weights under a plan, its decoder's last block apart.
struct Opened {
  Opened(const char* name, const char* source)
      : network(require_network(name).build({.batch = 2,
                                             .dtype = DType::bf16,
                                             .sampling = true,
                                             .shallow_blocks = 1,
                                             .fold_skips = folds_skips(suite(), *platform, source, DType::bf16)})),
        plan(*platform, suite(), count_problems(network.graph), {.source = source}),
        executor(*platform, network, RandomWeights(), plan) {}

  std::unique_ptr<Platform> platform = make_cuda_platform(0);
  Network network;
  Plan plan;
  Executor executor;
};

// Bit by bit, in a recording too, and behind a call of other latents.
TEST(ShallowCallsOnADevice, TakeWhatAWholeCallLeft) {
  for (const char* name : {"digits", "moving-digits"})
    for (const char* source : {"own", "fastest"}) {
      SCOPED_TRACE(std::string(name) + ", plan " + source);
      Opened opened(name, source);
      Platform& platform = *opened.platform;
      Executor& executor = opened.executor;
      for (const NetworkTensor& input : opened.network.inputs) {
        if (drawn(input.kind)) continue;
        const Value& value = opened.network.graph[input.value];
        std::vector<char> data(value.bytes());
        fill_for_timing(input, value.dtype, data.data());
        platform.upload(executor.data(input.value), data.data(), data.size());
      }
      throw_if_failed(executor.enqueue_once());
      const auto whole_call = platform.record([&] { return executor.enqueue_call(false); });
      const auto shallow_call = platform.record([&] { return executor.enqueue_call(true); });
      const auto output = [&](std::uint64_t x, Recording& call) {
        const Value& image = opened.network.graph[opened.network.x()];
        platform.fill_normal(image.dtype, executor.data(opened.network.x()), image.elements(), 0, 1, x);
        call.replay();
        platform.synchronize();
        std::vector<float> numbers(static_cast<std::size_t>(opened.network.graph[opened.network.output()].elements()));
        platform.download(numbers.data(), executor.data(opened.network.output()), numbers.size() * sizeof(float));
        return numbers;
      };
      const std::vector<float> whole = output(7, *whole_call);
      for (int time = 0; time < 3; ++time) {
        EXPECT_EQ(output(7, *shallow_call), whole);
        EXPECT_NE(output(8, *shallow_call), whole);
      }
      const std::vector<float> other = output(8, *shallow_call);
      EXPECT_NE(other, output(8, *whole_call)) << "what is below it is of another x";
    }
}

TEST(FrameStreamOnADevice, DrawsTheSameFramesAgainAndWithoutProgrammaticLaunch) {
  Opened opened("digits", "own");
  const SamplingOptions options{
      .solver = sampler_step::Solver::dpmpp_2m, .steps = 4, .seed = 5, .first_step = 1, .cache_every = 2};
  const std::vector<float> before(static_cast<std::size_t>(opened.network.batch * opened.network.image.elements()),
                                  0.5f);
  const auto frames = [&](bool programmatic) {
    opened.executor.set_programmatic(programmatic);
    FrameStream stream(*opened.platform, opened.executor, options, nullptr, 0.1);
    std::vector<std::vector<float>> all;
    for (int time = 0; time < 2; ++time) {
      stream.begin(std::vector<int>{3, 4}, before);
      for (int frame = 0; frame < 3; ++frame) all.push_back(stream.next());
    }
    for (std::size_t frame = 0; frame < 3; ++frame) EXPECT_EQ(all[frame], all[frame + 3]) << frame;
    EXPECT_NE(all[0], all[1]);
    return all;
  };
  EXPECT_EQ(frames(true), frames(false));
}

}  // namespace
}  // namespace noisefloor::pipeline
