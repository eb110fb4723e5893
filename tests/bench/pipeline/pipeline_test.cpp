// The pipelines: problem files and checkpoints of networks, steps of samplers, pictures.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "bench/pipeline/checkpoint.h"
#include "bench/pipeline/finite.h"
#include "bench/pipeline/pictures.h"
#include "bench/pipeline/sampling.h"
#include "bench/sweep/problem_files.h"
#include "networks/network.h"
#include "tests/support/small_networks.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/weights_by_rule.h"

namespace noisefloor::pipeline {
namespace {

// ---- networks

// op/problem/dtype -> how often, and only of ops that a call has.
using Counts = std::map<std::string, long>;

// Full text, so that a plan from a sweep of the files' rows names every node. Of the networks that network.csv has:
// the rows of others were read off their public implementations, before anything is fused.
TEST(Networks, AskForTheProblemsOfTheProblemFiles) {
  const std::set<std::string> not_of_a_call{"q_sample", "sampler_step", "network"};
  const auto entries = load_problems("bench/problems");
  std::set<std::string> names, whole;  // of networks whose ops the files have, and of those that network.csv has
  for (const ProblemEntry& entry : entries)
    for (const auto& use : entry.uses) {
      if (!not_of_a_call.contains(entry.op->name)) names.insert(use.network);
      if (entry.op->name == "network") whole.insert(use.network.substr(0, use.network.rfind("-b")));
    }
  int compared = 0;
  for (const NetworkInfo& info : all_networks()) {
    for (const std::string& name : names) {
      const std::string prefix = std::string(info.name) + "-b";
      if (!name.starts_with(prefix) || !whole.contains(info.name)) continue;
      const std::int64_t batch = std::stoll(name.substr(prefix.size()));
      ++compared;
      const Network network = info.build({.batch = batch});  // as the op `network` builds it
      Counts asked, in_files;
      for (const CountedProblem& problem : count_problems(network.graph))
        asked[problem.op->name + "/" + problem.text + "/" + to_string(problem.dtype)] += problem.count;
      for (const ProblemEntry& entry : entries)
        for (const auto& use : entry.uses)
          if (use.network == name && !not_of_a_call.contains(entry.op->name))
            in_files[entry.op->name + "/" + entry.text + "/" + to_string(use.dtype.value_or(DType::bf16))] += use.count;
      EXPECT_EQ(asked, in_files) << name << ": see bench/problems/update.py";
    }
  }
  EXPECT_GE(compared, 5);
}

// ---- checkpoints

std::vector<FileTensor> digits_tensors(std::map<std::string, std::vector<float>>& storage) {
  const Network network = require_network("digits").build({.batch = 1, .dtype = DType::fp32});
  std::vector<FileTensor> tensors;
  for (const Value& value : network.graph.values()) {
    if (!value.source) continue;
    for (const auto& [name, rows] : value.source->tensors()) {
      if (storage.contains(name)) continue;
      std::vector<std::int64_t> shape = value.source->file;
      shape.front() = rows;
      std::int64_t count = 1;
      for (const std::int64_t extent : shape) count *= extent;
      auto& numbers = storage[name];
      numbers.resize(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
      tensors.push_back({name, "F32", shape, std::as_bytes(std::span(numbers))});
    }
  }
  return tensors;
}

TEST(Checkpoint, NamesAllThatIsWrongAtOnce) {
  const TemporaryFolder folder;
  std::map<std::string, std::vector<float>> storage;
  auto tensors = digits_tensors(storage);
  const Network network = require_network("digits").build({.batch = 1, .dtype = DType::fp32});

  write_safetensors(folder.path() / "right.safetensors", tensors);
  EXPECT_NO_THROW(Checkpoint(folder.path() / "right.safetensors").check(network));

  const auto named = [&](const std::string& name) {
    return std::find_if(tensors.begin(), tensors.end(), [&](const FileTensor& tensor) { return tensor.name == name; });
  };
  tensors.erase(named("model.map_layer0.bias"));
  named("model.map_layer1.bias")->shape = {16, 16};
  named("model.dec.8x8_aux_conv.bias")->dtype = "I32";
  storage["model.map_label.weight"][3] = NAN;
  tensors.push_back({"model.enc.resample_filter", "F32", {0}, {}});  // let pass
  tensors.push_back({"model.odd", "F32", {0}, {}});
  write_safetensors(folder.path() / "wrong.safetensors", tensors);
  try {
    Checkpoint(folder.path() / "wrong.safetensors").check(network);
    FAIL() << "a wrong checkpoint was taken";
  } catch (const InvalidInput& error) {
    const std::string message = error.what();
    for (const char* part : {"5 of its tensors", "map_layer0.bias [256] is missing",
                             "map_layer1.bias is [16, 16], not [256]", "aux_conv.bias is I32",
                             "map_label.weight has numbers that are not finite", "model.odd is not a tensor of digits"})
      EXPECT_NE(message.find(part), std::string::npos) << part << " in\n" << message;
    EXPECT_EQ(message.find("resample_filter"), std::string::npos);
  }
}

TEST(Checkpoint, RefusesWhatTheDtypeCannotHold) {
  const TemporaryFolder folder;
  std::map<std::string, std::vector<float>> storage;
  const auto tensors = digits_tensors(storage);
  for (auto& [name, numbers] : storage) std::fill(numbers.begin(), numbers.end(), 1.0f);
  const auto complaint = [&](float number, DType dtype) -> std::string {
    storage["model.map_label.weight"][3] = number;
    write_safetensors(folder.path() / "w.safetensors", tensors);
    try {
      Checkpoint(folder.path() / "w.safetensors").check(require_network("digits").build({.batch = 1, .dtype = dtype}));
      return "";
    } catch (const InvalidInput& error) {
      return error.what();
    }
  };
  EXPECT_EQ(complaint(-65519, DType::fp16), "");  // rounds to the largest, 65504
  EXPECT_NE(complaint(-65520, DType::fp16).find("map_label.weight has numbers that fp16 cannot hold: up to 65520"),
            std::string::npos);
  EXPECT_EQ(complaint(65520, DType::bf16), "");
  EXPECT_NE(complaint(std::numeric_limits<float>::max(), DType::bf16).find("bf16 cannot hold"), std::string::npos);
  EXPECT_EQ(complaint(std::numeric_limits<float>::max(), DType::fp32), "");
}

// svd-vae's first convolution takes latents that are not divided by 0.18215 yet.
TEST(Checkpoint, RefusesWhatTheDtypeCannotHoldOnceItIsMultiplied) {
  const TemporaryFolder folder;
  const NetworkInfo info = small_video_decoder();
  write_weights_by_rule(folder / "w.safetensors", info.build({}).graph);
  const SafetensorsFile file(folder / "w.safetensors");
  const auto complaint = [&](float number, DType dtype) -> std::string {
    std::vector<FileTensor> tensors;
    std::vector<std::vector<std::byte>> storage;
    for (const FileTensor& tensor : file.tensors()) {
      storage.push_back(file.read(tensor));
      if (tensor.name == "decoder.conv_in.weight") std::memcpy(storage.back().data(), &number, sizeof number);
      tensors.push_back({tensor.name, tensor.dtype, tensor.shape, storage.back()});
    }
    write_safetensors(folder / "other.safetensors", tensors);
    try {
      Checkpoint(folder / "other.safetensors").check(info.build({.dtype = dtype}));
      return "";
    } catch (const InvalidInput& error) {
      return error.what();
    }
  };
  EXPECT_EQ(complaint(-11900, DType::fp16), "");
  EXPECT_NE(complaint(-20000, DType::fp16)
                .find("decoder.conv_in.weight has numbers that fp16 cannot hold: up to 20000, times 5.48998"),
            std::string::npos);
  EXPECT_EQ(complaint(-20000, DType::bf16), "");
}

TEST(Checkpoint, AFileThatIsTruncatedInTheMeantimeIsAnError) {
  const TemporaryFolder folder;
  std::map<std::string, std::vector<float>> storage;
  write_safetensors(folder.path() / "w.safetensors", digits_tensors(storage));
  const Network network = require_network("digits").build({.batch = 1, .dtype = DType::fp32});
  const Checkpoint checkpoint(folder.path() / "w.safetensors");
  EXPECT_NO_THROW(checkpoint.check(network));
  std::filesystem::resize_file(folder.path() / "w.safetensors", 100'000);
  const auto load_all = [&] {
    for (const Value& value : network.graph.values())
      if (value.source) checkpoint.load(value);
  };
  EXPECT_THROW(load_all(), SafetensorsError);
  EXPECT_THROW(checkpoint.check(network), SafetensorsError);
}

TEST(Checkpoint, LaysWeightsOut) {
  const TemporaryFolder folder;
  std::vector<float> conv(3 * 2 * 2 * 2), table(4 * 3), rows(6 * 2), more(6 * 2);
  std::iota(more.begin(), more.end(), 100.0f);
  for (auto* numbers : {&conv, &table, &rows})
    for (std::size_t i = 0; i < numbers->size(); ++i) (*numbers)[i] = static_cast<float>(i);
  const std::vector<float> mix{2};
  const FileTensor tensors[] = {{"mix", "F32", {1}, std::as_bytes(std::span(mix))},
                                {"conv", "F32", {3, 2, 2, 2}, std::as_bytes(std::span(conv))},
                                {"table", "F32", {4, 3}, std::as_bytes(std::span(table))},
                                {"rows", "F32", {6, 2}, std::as_bytes(std::span(rows))},
                                {"more", "F32", {6, 2}, std::as_bytes(std::span(more))}};
  write_safetensors(folder.path() / "w.safetensors", tensors);
  const Checkpoint checkpoint(folder.path() / "w.safetensors");
  Graph graph;
  const auto loaded = [&](WeightSource source, std::vector<std::int64_t> shape) {
    const ValueId id = graph.weight(std::move(source), std::move(shape), DType::fp32);
    const std::vector<char> bytes = checkpoint.load(graph[id]);
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  };
  using Layout = WeightSource::Layout;
  // [cout, cin, kh, kw] -> [cout, kh, kw, cin], the last two output channels
  EXPECT_EQ(loaded({"conv", {3, 2, 2, 2}, Layout::ohwi, 1, 2}, {2, 2, 2, 2}),
            (std::vector<float>{8, 12, 9, 13, 10, 14, 11, 15, 16, 20, 17, 21, 18, 22, 19, 23}));
  EXPECT_EQ(loaded({"table", {4, 3}, Layout::transposed}, {3, 4}),
            (std::vector<float>{0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}));
  // rows q0 k0 v0 q1 k1 v1 -> q0 q1 k0 k1 v0 v1
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::hd3_to_3hd}, {6, 2}),
            (std::vector<float>{0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11}));
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::plain, 4, 2}, {2, 2}), (std::vector<float>{8, 9, 10, 11}));
  // rows of one below those of another
  EXPECT_EQ(loaded({"rows", {6, 2}, Layout::plain, 5, 2, {{"more", 6}}}, {2, 2}),
            (std::vector<float>{10, 11, 100, 101}));
  // a share of a blend, and what is left of it
  for (const bool rest : {false, true}) {
    WeightSource part{"rows", {6, 2}, Layout::plain, 4, 1};
    part.share = {"mix", rest};
    const double share = 1 / (1 + std::exp(rest ? 2.0 : -2.0));
    const std::vector<float> found = loaded(part, {1, 2});
    EXPECT_NEAR(found[0], 8 * share, 1e-6);
    EXPECT_NEAR(found[1], 9 * share, 1e-6);
  }
}

// ---- samplers

using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::Solver;

// Runs a sampler's rows on numbers, with the exact denoiser of a Gaussian N(mean, deviation^2): what it would do to one
// pixel. `noise` stands for every random number.
double run_on_gaussian(const SamplingOptions& options, Prediction prediction, double mean, double deviation,
                       double start, double noise = 0) {
  const auto denoised = [&](double x, double sigma) {
    return (deviation * deviation * x + sigma * sigma * mean) / (deviation * deviation + sigma * sigma);
  };
  const auto model = [&](double x, double sigma) {
    return prediction == Prediction::x0 ? denoised(x, sigma) : (x - denoised(x, sigma)) / sigma;
  };
  double x = start;
  std::vector<double> kept{0};
  const auto apply = [&](const sampler_step::CoefficientRow<double>& row, double at, double output) {
    const double x0 = std::clamp(row.model_x * at + row.model * output, -row.limit, row.limit);
    const double next = row.x * at + row.x0 * x0 + row.history * kept.back() + row.noise * noise;
    if (row.history_x0 != 0) kept.push_back(row.history_x * at + row.history_x0 * x0);
    return next;
  };
  for (const StepPlan& step : plan_steps(options, prediction)) {
    x += std::sqrt(std::max(0.0, step.sigma * step.sigma - step.churned_from * step.churned_from)) * noise;
    double proposal = apply(step.row, x, model(x, step.sigma));
    // Of the newest outputs the last is this step's, if it keeps one, and the one before is what its launch reads.
    const std::size_t newest = kept.size() - (step.row.history_x0 != 0 ? 2 : 1);
    for (std::size_t k = 0; k < step.older.size(); ++k) proposal += step.older[k] * kept[newest - 1 - k];
    x = step.second ? apply(*step.second, proposal, model(proposal, step.sigma_next)) : proposal;
  }
  return x;
}

// The probability flow of N(m, s^2): (x - m) / sqrt(s^2 + sigma^2) stays constant; from sigma_max to sigma_min, and a
// last step to 0 whose error is that of sigma_min, of all solvers.
TEST(Samplers, ConvergeWithTheirOrderOnAGaussian) {
  const double mean = 0.3, deviation = 0.5, start = 40;
  const double exact = mean + (start - mean) * deviation / std::sqrt(deviation * deviation + 80.0 * 80.0);
  for (const sampler_step::SolverRow& row : sampler_step::solvers()) {
    if (sampler_step::stochastic(row, 0)) continue;
    const auto error = [&](int steps) {
      return std::fabs(run_on_gaussian({.solver = row.solver, .steps = steps, .sigma_min = 1e-4}, Prediction::x0, mean,
                                       deviation, start) -
                       exact);
    };
    EXPECT_NEAR(std::log2(error(64) / error(128)), row.order, 0.3) << row.name;
  }
}

RC_GTEST_PROP(Samplers, PredictionsOfNoiseAndOfX0Agree, ()) {
  const auto solver = sampler_step::solvers()[*rc::gen::inRange<std::size_t>(0, sampler_step::solvers().size())].solver;
  const auto schedule =
      *rc::gen::element(Schedule::linear, Schedule::scaled_linear, Schedule::cosine, Schedule::karras);
  const SamplingOptions options{.solver = solver, .schedule = schedule, .steps = *rc::gen::inRange(1, 60)};
  const double by_noise = run_on_gaussian(options, Prediction::noise, 0.2, 0.6, 3, 0.5);
  const double by_x0 = run_on_gaussian(options, Prediction::x0, 0.2, 0.6, 3, 0.5);
  RC_ASSERT(std::fabs(by_noise - by_x0) < 1e-6 * std::max(1.0, std::fabs(by_x0)));
}

TEST(Samplers, DdimOnScaledLatentsIsDdimOfThePaper) {
  // Song et al. 2021, eq. 12, written out for x' = alpha x.
  const double mean = 0.3, deviation = 0.5;
  const auto bars = sampler_step::cumulative_alphas(Schedule::linear);
  const auto times = sampler_step::timesteps(20);
  double scaled = 1.7;  // unit variance
  for (std::size_t i = 0; i < times.size(); ++i) {
    const double bar = bars[static_cast<std::size_t>(times[i])];
    const double next = i + 1 < times.size() ? bars[static_cast<std::size_t>(times[i + 1])] : 1;
    const double sigma2 = (1 - bar) / bar, x = scaled / std::sqrt(bar);
    const double x0 = (deviation * deviation * x + sigma2 * mean) / (deviation * deviation + sigma2);
    const double epsilon = (scaled - std::sqrt(bar) * x0) / std::sqrt(1 - bar);
    scaled = std::sqrt(next) * x0 + std::sqrt(1 - next) * epsilon;
  }
  const double first = bars[999];
  const double ours = run_on_gaussian({.solver = Solver::ddim, .schedule = Schedule::linear, .steps = 20},
                                      Prediction::noise, mean, deviation, 1.7 / std::sqrt(first));
  EXPECT_NEAR(ours, scaled, 1e-10);
}

TEST(Samplers, ChurnRaisesTheLevelByItsGamma) {
  const auto steps = plan_steps({.steps = 10, .churn = 2}, Prediction::x0);
  EXPECT_DOUBLE_EQ(steps[3].sigma, steps[3].churned_from * 1.2);
  const auto capped = plan_steps({.steps = 10, .churn = 100}, Prediction::x0);
  EXPECT_DOUBLE_EQ(capped[3].sigma, capped[3].churned_from * std::sqrt(2.0));
}

TEST(Samplers, RefuseOptionsThatMakeNoSense) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const SamplingOptions wrong[] = {
      {.steps = 0},
      {.steps = 1001},
      {.sigma_min = 0},
      {.sigma_min = 90},
      {.rho = 0},
      {.eta = 0.5},
      {.solver = Solver::ddim, .eta = 1.5},
      {.solver = Solver::ddim, .churn = 1},
      {.churn = -1},
      {.solver = Solver::dpmpp_2m, .schedule = Schedule::linear, .steps = 1000},
      {.solver = Solver::ddim,
       .schedule = Schedule::linear,
       .steps = 20,
       .spacing = sampler_step::Spacing::leading,
       .offset = 50},
      {.solver = Solver::ddim, .schedule = Schedule::linear, .offset = -1},
      {.solver = Solver::ddim, .schedule = Schedule::linear, .steps = 1000, .ends_noisy = true},
      {.sigma_max = kInfinity},
      {.rho = kInfinity},
      {.rho = 1e-5},
      {.sigma_max = 1e300},
      {.sigma_min = 1e-300},
      {.churn = kInfinity},
      {.guidance = NAN},
      {.clamp = kInfinity},
      {.solver = Solver::ddim, .eta = NAN},
      {.seed = std::uint64_t{1} << 63}};
  for (const SamplingOptions& options : wrong) EXPECT_THROW(plan_steps(options, Prediction::x0), InvalidInput);
  EXPECT_EQ(plan_steps({.steps = 1}, Prediction::x0).size(), 1u);
  EXPECT_EQ(plan_steps({.seed = (std::uint64_t{1} << 63) - 1}, Prediction::x0).size(), 18u);
}

// The last two levels are one, where the spacing itself ends at timestep 0.
TEST(Samplers, EndAtTheLevelOfTheLastTimestepWithAnySpacing) {
  for (const Schedule schedule : {Schedule::linear, Schedule::scaled_linear, Schedule::cosine})
    for (const auto spacing :
         {sampler_step::Spacing::linspace, sampler_step::Spacing::leading, sampler_step::Spacing::trailing})
      for (const int steps : {1, 2, 3, 7, 20, 50}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(schedule) << ' ' << static_cast<int>(spacing) << ' '
                                        << steps);
        const SamplingOptions options{
            .solver = Solver::ddim, .schedule = schedule, .steps = steps, .spacing = spacing, .ends_noisy = true};
        EXPECT_EQ(std::ssize(plan_steps(options, Prediction::noise)), steps);
      }
}

TEST(Samplers, TimestepOfALevelInvertsTheSchedule) {
  for (const Schedule schedule : {Schedule::linear, Schedule::scaled_linear, Schedule::cosine}) {
    const auto bars = sampler_step::cumulative_alphas(schedule);
    for (const std::size_t t : {0u, 1u, 500u, 998u, 999u})
      EXPECT_NEAR(timestep_of(std::sqrt((1 - bars[t]) / bars[t]), schedule), static_cast<double>(t), 1e-6);
    EXPECT_EQ(timestep_of(1e-9, schedule), 0);
    EXPECT_EQ(timestep_of(1e9, schedule), 999);
  }
}

// ---- pictures

TEST(Pictures, GridPutsImagesRowByRow) {
  const std::vector<float> images{-1, -1, -1, -1, 1, 1, 1, 1, 0, 0, 0, NAN};  // three of 2x2
  const Picture picture = make_grid(images, {2, 2, 1}, 2, 1);
  EXPECT_EQ(picture.width, 5);
  EXPECT_EQ(picture.height, 5);
  const auto at = [&](std::int64_t y, std::int64_t x) {
    return picture.pixels[static_cast<std::size_t>(y * picture.width + x)];
  };
  EXPECT_EQ(at(0, 0), 0);
  EXPECT_EQ(at(0, 3), 255);
  EXPECT_EQ(at(3, 0), 128);
  EXPECT_EQ(at(4, 1), 0);  // not finite
  EXPECT_EQ(at(3, 3), 0);  // no image
}

TEST(Pictures, FramesAreFurtherPicturesOfAnyHeightAndWidth) {
  std::vector<float> video;  // one of two frames, 1 x 3, each pixel a shade of its own
  for (const int shade : {0, 1, 2, 3, 4, 5}) video.push_back(static_cast<float>(2 * shade) / 255 - 1);
  const Picture picture = make_grid(video, {1, 3, 1, 2}, 1, 1);
  EXPECT_EQ(picture.width, 3);
  EXPECT_EQ(picture.height, 3);
  EXPECT_EQ(picture.pixels, (std::vector<std::uint8_t>{0, 1, 2, 0, 0, 0, 3, 4, 5}));
}

TEST(Pictures, PngOfMoreThanAnIntCanCountIsRefused) {
  const TemporaryFolder folder;
  const Picture grid = grid_outline(13001, {8, 8, 1}, 1000, 64);
  EXPECT_EQ(grid.width, 1000 * 576 - 64);
  EXPECT_EQ(grid.height, 14 * 576 - 64);
  EXPECT_EQ(png_bytes(grid.width, grid.height, 1), (grid.width + 1) * grid.height);
  EXPECT_THROW(write_png(folder.path() / "grid.png", grid), std::runtime_error);  // before a pixel is read
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "grid.png"));
}

TEST(Results, NumbersThatAreNotFiniteAreCounted) {
  const std::vector<float> good{1, -2, 3, 4, 5, 6};
  EXPECT_NO_THROW(require_finite(good, 2, 7));
  EXPECT_NO_THROW(require_finite({}, 2, 0));
  std::vector<float> bad = good;
  bad[2] = NAN;
  bad[3] = bad[5] = -std::numeric_limits<float>::infinity();
  try {
    require_finite(bad, 2, 7);
    FAIL() << "taken";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what())
                  .find("3 of 6 elements of the result are not finite (NaN or infinite), in 2 of 3 "
                        "images, the first in image 8"),
              std::string::npos)
        << error.what();
  }
}

TEST(Pictures, PngIsWrittenWholeOrNotAtAll) {
  const TemporaryFolder folder;
  const Picture picture = make_grid(std::vector<float>(4 * 3, 0.5f), {2, 2, 3}, 1, 2);
  write_png(folder.path() / "grid.png", picture);
  std::ifstream stream(folder.path() / "grid.png", std::ios::binary);
  std::string signature(8, ' ');
  stream.read(signature.data(), 8);
  EXPECT_EQ(signature, "\x89PNG\r\n\x1a\n");
  EXPECT_THROW(write_png(folder.path() / "no" / "grid.png", picture), std::runtime_error);
}

}  // namespace
}  // namespace noisefloor::pipeline
