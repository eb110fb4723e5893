// Calls that are not whole, loops that begin on the way, and frames that follow each other.
#include "bench/pipeline/frame_stream.h"

#include <gtest/gtest.h>

#include "bench/pipeline/pictures.h"
#include "kernels/core/fields.h"
#include "networks/network.h"
#include "tests/support/on_host.h"
#include "tests/support/small_networks.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::Schedule;
using sampler_step::Solver;

// With random weights, and all but x drawn.
struct Opened : OnHost {
  Opened(const NetworkInfo& row, std::int64_t blocks)
      : OnHost(row, {.dtype = DType::fp32, .sampling = true, .shallow_blocks = blocks}) {
    fill();
    throw_if_failed(executor.enqueue_once());
  }
  std::vector<float> call(std::uint64_t x, bool shallow) {
    const Value& image = network.graph[network.x()];
    platform.fill_normal(image.dtype, executor.data(network.x()), image.elements(), 0, 1, x);
    throw_if_failed(executor.enqueue_call(shallow));
    return held(network.output());
  }
};

// Of the x that was kept of, the same picture bit by bit, also behind a call of another.
TEST(ShallowCalls, TakeWhatAWholeCallLeft) {
  NetworkInfo text = small_network("sd15", kSmall);
  text.image = {4, 6, 4};
  for (const NetworkInfo& info : {require_network("digits"), require_network("moving-digits"), text})
    for (const std::int64_t blocks : {1, 2}) {
      SCOPED_TRACE(info.name);
      Opened opened(info, blocks);
      const std::vector<float> whole = opened.call(7, false);
      EXPECT_EQ(opened.call(7, true), whole);
      const std::vector<float> other = opened.call(8, true);
      EXPECT_NE(other, whole);
      EXPECT_EQ(opened.call(7, true), whole);
      EXPECT_NE(other, opened.call(8, false)) << "what is below it is of another x";
    }
}

struct Digits : OnHost {
  Digits() : OnHost(require_network("digits"), {.dtype = DType::fp32, .sampling = true, .shallow_blocks = 1}) {}
};
constexpr SamplingOptions kTwoOfFour{.solver = Solver::edm_euler, .steps = 4, .seed = 5, .first_step = 2};
const std::vector<int> kLabels{3};

TEST(Sampler, OneCallInSoManyIsWhole) {
  SamplingOptions options{.solver = Solver::edm_euler, .steps = 7, .cache_every = 3};
  Digits digits;
  Counting counting;
  digits.executor.listen(&counting);
  const std::vector<float> found = Sampler(digits.platform, digits.executor, options).run(kLabels, 0);
  EXPECT_EQ(counting.launches.at("model.dec.8x8_aux_conv"), 7);
  EXPECT_EQ(counting.launches.at("model.dec.4x4_in0.conv0"), 3);
  options.cache_every = 1;
  const std::vector<float> expected = Sampler(digits.platform, digits.executor, options).run(kLabels, 0);
  EXPECT_NE(found, expected);
  EXPECT_LT(relative_l2(found, expected), 1.0);
}

TEST(FrameStream, FollowsTheSamePictureWithTheSameFrames) {
  Digits digits;
  const std::vector<float> first(64, 0.5f);
  FrameStream stream(digits.platform, digits.executor, kTwoOfFour, nullptr, 0.1);
  std::vector<std::vector<float>> frames;
  for (int time = 0; time < 2; ++time) {
    stream.begin(kLabels, first);
    for (int frame = 0; frame < 3; ++frame) frames.push_back(stream.next());
  }
  for (std::size_t frame = 0; frame < 3; ++frame) EXPECT_EQ(frames[frame], frames[frame + 3]) << frame;
  EXPECT_NE(frames[0], frames[1]);
  EXPECT_EQ(stream.latents(), frames.back());
}

// With all of it blended away a frame is of its noise alone; with none, of the picture before.
TEST(FrameStream, BlendsThePictureBeforeAway) {
  Digits digits;
  const auto frame_behind = [&](double blend, float pixel) {
    std::vector<float> before(64, pixel);
    for (std::size_t i = 0; i < 32; ++i) before[i] = -pixel;
    FrameStream stream(digits.platform, digits.executor, kTwoOfFour, nullptr, blend);
    stream.begin(kLabels, before);
    return stream.next();
  };
  EXPECT_EQ(frame_behind(1, 0.5f), frame_behind(1, -0.5f));
  EXPECT_NE(frame_behind(0.5, 0.5f), frame_behind(0.5, -0.5f));
  EXPECT_THROW(frame_behind(1.5, 0.5f), InvalidInput);
  EXPECT_THROW(frame_behind(-0.1, 0.5f), InvalidInput);
}

// What is shown is what the decoder makes of the frame's latents, of a schedule that ends noisy too.
TEST(FrameStream, DecodesWhatWasDrawn) {
  NetworkInfo text = small_network("sd15", kSmall);
  text.image = {4, 6, 4};
  Opened opened(text, 1);
  OnHost decoder(small_decoder(4, 6), {.dtype = DType::fp32});
  SamplingOptions options{
      .solver = Solver::ddim, .schedule = Schedule::scaled_linear, .steps = 4, .ends_noisy = true, .first_step = 2};
  FrameStream stream(opened.platform, opened.executor, options, &decoder.executor, 0.1);
  options.seed = 6;
  FrameStream other(opened.platform, opened.executor, options, &decoder.executor, 0.1);  // of the same decoder
  stream.begin({}, std::vector<float>(4 * 6 * 4, 0.25f));
  for (int frame = 0; frame < 2; ++frame) {
    const std::vector<float> shown = stream.next(), latents = stream.latents();
    EXPECT_EQ(shown, OnHost(small_decoder(4, 6), {.dtype = DType::fp32}).call(latents)) << frame;
  }
}

// The end of a schedule, by itself.
TEST(Sampler, BeginsOnTheWay) {
  for (const Solver solver : {Solver::edm_euler, Solver::edm_heun, Solver::ddim, Solver::dpmpp_2m, Solver::pndm}) {
    const sampler_step::SolverRow& row = sampler_step::row_of(solver);
    SamplingOptions options{.solver = solver, .schedule = row.schedule, .steps = 6};
    const auto all = plan_steps(options, require_network("digits"));
    options.first_step = 4;
    const auto last = plan_steps(options, require_network("digits"));
    ASSERT_EQ(last.size(), 2u) << row.name;
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(last[i].sigma, all[4 + i].sigma) << row.name;
      EXPECT_EQ(last[i].sigma_next, all[4 + i].sigma_next) << row.name;
      EXPECT_EQ(last[i].older.size(), 0u) << row.name;
    }
    EXPECT_EQ(last[0].row.history, 0) << row.name << " has no history yet";
    EXPECT_EQ(last[0].second.has_value(), row.calls_of(0) == 2) << row.name;
  }
  for (const int first : {-1, 6}) {
    SamplingOptions options{.steps = 6, .first_step = first};
    EXPECT_THROW(plan_steps(options, require_network("digits")), InvalidInput) << first;
  }
  EXPECT_THROW(plan_steps({.cache_every = 0}, require_network("digits")), InvalidInput);
}

}  // namespace
}  // namespace noisefloor::pipeline
