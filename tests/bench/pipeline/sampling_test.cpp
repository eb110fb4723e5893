// The sampling loop over several batches: what is recorded once, what for each, and that pictures do not tell.
#include "bench/pipeline/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "bench/pipeline/pipeline.h"
#include "bench/sweep/suite.h"
#include "networks/network.h"
#include "tests/support/host_platforms.h"
#include "tests/support/on_host.h"
#include "tests/support/small_networks.h"

namespace noisefloor::pipeline {
namespace {

using sampler_step::Solver;

struct Digits : OnHost {
  Digits() : OnHost(require_network("digits"), {.batch = 2, .dtype = DType::fp32, .sampling = true}) {}
};

constexpr int kBatches = 3;

// Draws batches with one sampler, and each with one of its own; returns how often the first recorded. `kept`: what it
// may hold in the end.
int recordings_of(Digits& digits, const SamplingOptions& options, std::size_t kept) {
  Sampler sampler(digits.platform, digits.executor, options);
  int recordings = 0;
  for (int batch = 0; batch < kBatches; ++batch) {
    const std::vector<int> labels{batch, batch + 5};
    const int before = digits.platform.recordings;
    const std::vector<float> images = sampler.run(labels, 2 * batch);
    recordings += digits.platform.recordings - before;
    Sampler fresh(digits.platform, digits.executor, options);
    EXPECT_EQ(images, fresh.run(labels, 2 * batch)) << "batch " << batch;
    EXPECT_EQ(sampler.runners(), kept) << "batch " << batch;
  }
  return recordings;
}

// Every solver, and what options make of it. A launch is kept for each step, and for each second half but the last's.
TEST(Sampler, RecordsOnceWhereNoNoiseIsDrawnElseEachBatchAndKeepsOnlyTheLast) {
  constexpr int kSteps = 3;
  Digits digits;
  for (const sampler_step::SolverRow& row : sampler_step::solvers()) {
    SCOPED_TRACE(row.name);
    std::size_t launches = kSteps + (row.mixes_to_the_end ? 1 : 0);  // what the third step adds of the first
    for (int step = 0; step + 1 < kSteps; ++step) launches += static_cast<std::size_t>(row.calls_of(step) - 1);
    const SamplingOptions plain{.solver = row.solver, .schedule = row.schedule, .steps = kSteps};
    const bool noisy = sampler_step::stochastic(row, 0);
    EXPECT_EQ(recordings_of(digits, plain, launches), noisy ? kBatches : 1);
    SamplingOptions more = plain;
    if (row.takes_eta()) {
      more.eta = 1;
      EXPECT_EQ(recordings_of(digits, more, launches), kBatches);
    }
    if (row.calls == 2 && row.churns) {
      more.churn = 10;
      EXPECT_EQ(recordings_of(digits, more, launches + kSteps - 1), kBatches);  // the first level is the largest
    }
  }
}

TEST(Sampler, ReportsAndDrawsTheSame) {
  Digits digits;
  Sampler sampler(digits.platform, digits.executor, {.solver = Solver::dpmpp_2m, .steps = 6});
  const std::vector<int> labels{1, 2};
  const std::vector<float> silent = sampler.run(labels, 6);
  std::vector<std::size_t> reports;
  sampler.report_to([&](std::size_t steps) { reports.push_back(steps); });
  const int before = digits.platform.recordings;
  EXPECT_EQ(sampler.run(labels, 6), silent);
  const auto pieces = static_cast<std::size_t>(digits.platform.recordings - before);
  EXPECT_EQ(reports.size(), pieces);
  EXPECT_EQ(reports.front(), 1);
  EXPECT_EQ(reports.back(), 6);
  EXPECT_TRUE(std::ranges::is_sorted(reports));

  EXPECT_EQ(sampler.run(labels, 6), silent);  // the pieces again
  EXPECT_EQ(digits.platform.recordings - before, static_cast<int>(pieces));
  EXPECT_EQ(reports.size(), 2 * pieces);

  reports.clear();
  EXPECT_EQ(sampler.run(labels, 6, [](int, const void*) {}), silent) << "watched step by step";
  EXPECT_EQ(reports, (std::vector<std::size_t>{1, 2, 3, 4, 5, 6}));
}

// Two batches of a network's sampling loop of three calls, told other things each; `once`: whether what does not change
// in a loop is computed once. Returns the pictures, and how often each node was launched.
std::pair<std::vector<float>, std::map<std::string, int>> two_batches(const NetworkInfo& info, bool guided, bool once,
                                                                      std::int64_t batch_size = 2,
                                                                      std::int64_t hoisted_levels = 0) {
  LimitedPlatform platform{std::size_t{1} << 30};
  Network network = info.build({.batch = batch_size,
                                .dtype = DType::fp32,
                                .sampling = true,
                                .guided = guided,
                                .hoisted_levels = hoisted_levels});
  network.sampling = once;
  const Plan plan(platform, suite(), count_problems(network.graph), {"naive"});
  Executor executor(platform, network, RandomWeights(), plan);
  SamplingOptions options{
      .solver = Solver::edm_euler, .schedule = info.schedule, .steps = 3, .guidance = guided ? 2.0 : 0.0};
  if (guided && info.most_frames > 1) options.first_guidance = 1;
  Sampler sampler(platform, executor, options);
  Counting counting;
  executor.listen(&counting);
  std::vector<float> pictures;
  for (int batch = 0; batch < 2; ++batch) {
    for (const NetworkTensor& input : network.inputs)
      if (drawn(input.kind) && input.value != network.x()) {
        const Value& value = network.graph[input.value];
        platform.fill_normal(value.dtype, executor.data(input.value), value.elements(), 0, 1,
                             static_cast<std::uint64_t>(100 * batch) + input.value);
      }
    std::vector<int> labels{3 * batch, 7};
    labels.resize(static_cast<std::size_t>(batch_size), 5);
    const std::vector<float> some = sampler.run(labels, batch_size * batch);
    pictures.insert(pictures.end(), some.begin(), some.end());
  }
  return {pictures, counting.launches};
}

// Bit by bit the same, also in the second batch: nothing overwrites what is kept.
TEST(Sampler, ComputesOnceWhatDoesNotChange) {
  NetworkInfo text = small_network("sd15", kSmall);
  text.image = {4, 6, 4};
  const std::pair<NetworkInfo, const char*> networks[] = {
      {require_network("digits"), ""},  // its labels are added to the level in one product
      {text, "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k"},  // and what is one product with it
      {small_network("svd", kSmallSvd), "mid_block.attentions.0.transformer_blocks.0.attn2.to_out.0"}};
  for (const auto& [info, node] : networks)
    for (const bool guided : {false, true}) {
      const auto [found, few] = two_batches(info, guided, true);
      const auto [expected, all] = two_batches(info, guided, false);
      EXPECT_EQ(found, expected) << info.name;
      EXPECT_EQ(few.size(), all.size()) << info.name;
      if (*node == '\0') continue;
      const auto launches = [&](const auto& of) {
        const auto found_node = of.lower_bound(node);  // names that begin so
        return found_node != of.end() && found_node->first.starts_with(node) ? found_node->second : 0;
      };
      EXPECT_EQ(launches(few), 2) << info.name;
      EXPECT_EQ(launches(all), 2 * 3) << info.name;
    }
}

// From six rows on gemm's sums on a host do not depend on how many there are.
constexpr std::int64_t kRows = 6;

// Bit by bit the same, also of a network that is there for longer loops, and where each call embeds all levels anew.
TEST(Sampler, EmbedsTheLevelsOfAllCallsAtOnce) {
  NetworkInfo digits = require_network("digits"), moving = require_network("moving-digits");
  NetworkInfo text = small_network("sd15", kSmall);
  digits.image = {2, 2, 1};
  moving.image = {4, 4, 1, 2};
  text.image = {2, 2, 4};
  const std::pair<NetworkInfo, const char*> networks[] = {
      {digits, "map_noise"}, {text, "timestep_embedding"}, {moving, "map_noise"}};
  for (const auto& [info, embedding] : networks)
    for (const bool guided : {false, true}) {
      SCOPED_TRACE(info.name + std::string(guided ? ", guided" : ""));
      const std::int64_t batch = guided ? kRows / 2 : kRows;
      const auto [expected, all] = two_batches(info, guided, true, batch);
      EXPECT_EQ(all.at(embedding), 2 * 3);
      for (const std::int64_t levels : {3, 5}) {
        const auto [found, few] = two_batches(info, guided, true, batch, levels);
        EXPECT_EQ(found, expected) << levels;
        EXPECT_EQ(few.at(embedding), 2) << levels;
      }
      EXPECT_EQ(two_batches(info, guided, false, batch, 3).first, expected);
    }
}

// Where a step asks twice, noise is drawn on the way, or calls keep what an earlier one left: of as many calls as are
// said, and no loop has more than its network has levels.
TEST(Sampler, EmbedsTheLevelsOfItsCallsBySolversOfEveryKind) {
  const std::vector<int> labels{1, 2, 3, 4, 5, 6};
  static_assert(kRows == 6);
  std::vector<SamplingOptions> every_kind{{.solver = Solver::edm_heun, .steps = 3, .churn = 10},
                                          {.solver = Solver::dpmpp_2m, .steps = 4, .cache_every = 2}};
  for (const sampler_step::SolverRow& row : sampler_step::solvers())
    every_kind.push_back({.solver = row.solver, .schedule = row.schedule, .steps = 4});
  for (const SamplingOptions& options : every_kind) {
    SCOPED_TRACE(options.row().name);
    const std::int64_t calls = calls_of(plan_steps(options, require_network("digits")));
    const auto drawn = [&](std::int64_t hoisted_levels) {
      OnHost host(require_network("digits"), {.batch = kRows,
                                              .dtype = DType::fp32,
                                              .sampling = true,
                                              .shallow_blocks = options.cache_every > 1 ? 1 : 0,
                                              .hoisted_levels = hoisted_levels});
      Counting counting;
      host.executor.listen(&counting);
      const std::vector<float> pictures = Sampler(host.platform, host.executor, options).run(labels, 0);
      EXPECT_EQ(counting.launches.at("model.dec.8x8_aux_conv"), calls);
      return pictures;
    };
    EXPECT_EQ(drawn(calls), drawn(0));
    EXPECT_THROW(drawn(calls - 1), std::logic_error);
  }
}

TEST(Pipeline, DrawsTheSameAfterAReportThatThrew) {
  const auto platform = make_host_platform();
  const ModelRequest model{.network = "digits", .weights = "bench/pipeline/weights/digits.safetensors"};
  Pipeline pipeline(SampleRequest({.model = model, .steps = 2, .count = 2}), {*platform, suite()});
  const std::vector<float> images = pipeline.draw().images;
  const auto stop = [](const Pipeline::Step&) { throw std::runtime_error("stop"); };
  EXPECT_THROW(pipeline.draw(stop), std::runtime_error);
  EXPECT_EQ(pipeline.draw().images, images);
}

}  // namespace
}  // namespace noisefloor::pipeline
