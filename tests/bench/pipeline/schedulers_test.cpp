// Samplers over networks of training timesteps, held to diffusers' schedulers (schedulers.py): what the network is
// told, and the latents before each step and in the end. And that no loop asks a network beyond the levels of its
// training.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>

#include "bench/pipeline/sample_request.h"
#include "bench/pipeline/sampling.h"
#include "kernels/core/fields.h"
#include "reports/run/csv.h"

namespace noisefloor::pipeline {
namespace {

using networks::NetworkInfo;
using sampler_step::Prediction;
using sampler_step::Schedule;
using sampler_step::Solver;

// Runs a sampler's steps over schedulers.py's function in the place of a network, with the numbers of a device: floats.
class OverAFunction {
 public:
  OverAFunction(const SamplingOptions& options, const NetworkInfo& info) : steps_(plan_steps(options, info)) {
    start_ = 0.7 * first_deviation(steps_.front().sigma, options, info);
  }

  const std::vector<StepPlan>& steps() const { return steps_; }
  double start() const { return start_; }
  double next(std::size_t step, double x) {
    const StepPlan& plan = steps_[step];
    const std::size_t newest = kept_.size() - 1;  // what the step before kept
    double next = half(plan.row, plan.sigma, plan.timestep, x, step);
    for (std::size_t k = 0; k < plan.older.size(); ++k) next += plan.older[k] * kept_[newest - 1 - k];
    return plan.second ? half(*plan.second, plan.sigma_next, plan.timestep_next, next, step) : next;
  }

 private:
  double half(const sampler_step::CoefficientRow<double>& exact, double sigma, double t, double x, std::size_t step) {
    const sampler_step::Coefficients row = rounded(exact);
    const double model = 0.8 * std::sin(2 * x / std::hypot(1.0, sigma)) + 0.1 * std::cos(t / 70);
    const double x0 = row.model_x * x + row.model * model;
    const double next =
        row.x * x + row.x0 * x0 + row.history * kept_.back() + row.noise * std::cos(3 * static_cast<double>(step));
    if (row.history_x0 != 0) kept_.push_back(row.history_x * x + row.history_x0 * x0);
    return next;
  }

  std::vector<StepPlan> steps_;
  double start_ = 0;
  std::vector<double> kept_{0};
};

int index_of(std::span<const char* const> names, const std::string& name) {
  return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::vector<double> numbers_of(const std::string& text) {
  std::vector<double> numbers;
  for (std::size_t at = 0; at < text.size(); at = text.find(' ', at) + 1) {
    numbers.push_back(std::stod(text.substr(at)));
    if (text.find(' ', at) == std::string::npos) break;
  }
  return numbers;
}

TEST(Samplers, FollowDiffusersSchedulersStepByStep) {
  const CsvFile file = read_csv("tests/bench/pipeline/schedulers.csv");
  std::map<std::string, int> loops;
  for (std::size_t line = 0; line < file.lines.size(); ++line) {
    const auto text = [&](const char* column) { return file.lines[line].fields[file.column(column)]; };
    SCOPED_TRACE(fmt::format("line {} of schedulers.csv: {} {} {} --final {}, {}, {} steps", line + 2, text("solver"),
                             text("schedule"), text("spacing"), text("final"), text("prediction"), text("steps")));
    ++loops[text("solver")];
    const SamplingOptions options{
        .solver = static_cast<Solver>(index_of(sampler_step::solver_names(), text("solver"))),
        .schedule = static_cast<Schedule>(index_of(sampler_step::kScheduleNames, text("schedule"))),
        .steps = std::stoi(text("steps")),
        .spacing = static_cast<sampler_step::Spacing>(index_of(sampler_step::kSpacingNames, text("spacing"))),
        .offset = std::stoi(text("offset")),
        .ends_noisy = text("final") == "first",
        .eta = std::stod(text("eta"))};
    const std::vector<double> timesteps = numbers_of(text("timesteps")), latents = numbers_of(text("latents"));
    for (const char* name : {"sd15", "sdxl"}) {
      NetworkInfo info = networks::require_network(name);
      if (text("prediction") == "v") info.prediction = Prediction::v;
      OverAFunction sampler(options, info);
      ASSERT_EQ(sampler.steps().size(), timesteps.size());
      ASSERT_EQ(latents.size(), timesteps.size() + 1);
      double x = sampler.start();
      for (std::size_t step = 0; step < latents.size(); ++step) {
        const double error = std::fabs(x - latents[step]) / std::max(1.0, std::fabs(latents[step]));
        ASSERT_LE(error, 2e-5) << name << ", step " << step << ": " << x << ", not " << latents[step];
        if (step == timesteps.size()) break;
        const double off = std::fabs(sampler.steps()[step].timestep - timesteps[step]);
        ASSERT_LE(off, 2e-3) << name << ", step " << step;
        x = sampler.next(step, x);
      }
    }
  }
  EXPECT_EQ(loops.size(), sampler_step::solvers().size());
  for (const auto& [solver, count] : loops) EXPECT_GE(count, 2 * 7) << solver;
}

// The figures that users of these checkpoints know, each from its own source: Stable Diffusion's betas, Nichol and
// Dhariwal's cosine, EDM's and Stable Video Diffusion's configurations.
struct Trained {
  const char* network;
  double least, most;
};
constexpr Trained kTrained[] = {{"sd15", 0.02916716, 14.614641},
                                {"sdxl", 0.02916716, 14.614641},
                                {"svd", 0.002, 700},
                                {"edm-cifar", 0.002, 80},
                                {"digits", 0.002, 80},
                                {"moving-digits", 0.002, 80},
                                {"mnist-unet", 0.002, 80},
                                {"adm64", 0.006425413, 20291.17},
                                {"unetcu", 0.0100005, 157.40728}};

SampleArguments asked_of(const std::string& network) {
  const bool told = !networks::require_network(network).conditioning.empty();
  return {.model = {.network = network}, .conditioning = told ? "a file" : ""};
}

TEST(Levels, KarrasSpansThoseOfTheTraining) {
  std::size_t drawing = 0;
  for (const NetworkInfo& info : networks::all_networks()) drawing += info.decodes() ? 0 : 1;
  ASSERT_EQ(std::size(kTrained), drawing) << "a network whose levels nothing here knows";
  for (const auto& [network, least, most] : kTrained) {
    SampleArguments asked = asked_of(network);
    asked.schedule = Schedule::karras;
    const std::vector<StepPlan> steps = SampleRequest(asked).steps;
    EXPECT_NEAR(steps.front().sigma, most, 1e-6 * most) << network;
    const StepPlan& last = steps.back();
    EXPECT_NEAR(last.sigma, least, 1e-6 * least) << network;
    EXPECT_EQ(last.sigma_next, 0) << network;
  }
}

// What `sample` was asked for may be refused, but never answered with levels beyond those of the training.
RC_GTEST_PROP(Levels, StayWithinThoseOfTheTraining, ()) {
  const Trained trained = *rc::gen::elementOf(std::vector<Trained>(std::begin(kTrained), std::end(kTrained)));
  const NetworkInfo& info = networks::require_network(trained.network);
  const auto one_of = [](std::span<const char* const> names) {
    return *rc::gen::inRange(0, static_cast<int>(names.size()));
  };
  SampleArguments asked = asked_of(info.name);
  asked.sampler = static_cast<Solver>(one_of(sampler_step::solver_names()));
  asked.schedule = static_cast<Schedule>(one_of(sampler_step::kScheduleNames));
  asked.steps = *rc::gen::weightedOneOf<int>({{9, rc::gen::inRange(1, 60)}, {1, rc::gen::inRange(60, 1001)}});
  if (asked.schedule != Schedule::karras) {
    asked.spacing = static_cast<sampler_step::Spacing>(one_of(sampler_step::kSpacingNames));
    asked.ends_noisy = *rc::gen::element<std::optional<bool>>({}, false, true);
  }
  if (sampler_step::row_of(*asked.sampler).churns) asked.churn = *rc::gen::element(0.0, 5.0, 100.0);
  std::optional<SampleRequest> request;
  try {
    request.emplace(asked);
  } catch (const InvalidInput&) {  // more steps than timesteps, or an offset behind the last
    RC_ASSERT(*asked.steps > 400);
    return;
  }
  RC_ASSERT(static_cast<int>(request->steps.size()) == *asked.steps);
  for (const StepPlan& step : request->steps)
    for (const double sigma : {step.sigma, step.second ? step.sigma_next : step.sigma}) {
      RC_ASSERT(sigma >= trained.least * (1 - 1e-6) && sigma <= trained.most * (1 + 1e-6));
      if (info.schedule != Schedule::karras) RC_ASSERT(timestep_of(sigma, request->options, info) <= 999);
    }
  RC_ASSERT(notes_of(*request).empty());
}

TEST(Levels, OthersAreThereOnRequestAndNamed) {
  for (const Schedule schedule : {Schedule::karras, Schedule::linear}) {
    SCOPED_TRACE(sampler_step::kScheduleNames[static_cast<int>(schedule)]);
    SampleArguments asked = asked_of("sd15");
    asked.sampler = Solver::edm_euler;
    asked.schedule = schedule;
    if (schedule == Schedule::linear) asked.spacing = sampler_step::Spacing::linspace;
    asked.sigma_max = 1000;
    const SampleRequest more(asked);
    EXPECT_GT(more.steps.front().sigma, 150);
    EXPECT_EQ(more.steps.front().timestep, 999);
    ASSERT_EQ(notes_of(more).size(), 1u);
    EXPECT_NE(notes_of(more)[0].find("sd15 was trained at 0.029167 to 14.615"), std::string::npos) << notes_of(more)[0];
    asked.sigma_max = 10;  // fewer of them need no word
    const SampleRequest fewer(asked);
    EXPECT_LE(fewer.steps.front().sigma, 10 + 1e-9);
    EXPECT_GT(fewer.steps.front().sigma, 9.5);
    EXPECT_TRUE(notes_of(fewer).empty());
  }
}

// At 1 nothing is compared.
TEST(Guidance, IsDoubtedOfCheckpointsThatNeverSawAMissingLabel) {
  for (const auto& [network, guidance, notes] :
       {std::tuple{"adm64", 2.0, 1u}, {"adm64", 1.0, 0u}, {"digits", 2.0, 0u}}) {
    SampleArguments asked = asked_of(network);
    asked.guidance = guidance;
    EXPECT_EQ(notes_of(SampleRequest(asked)).size(), notes) << network << ", " << guidance;
  }
}

}  // namespace
}  // namespace noisefloor::pipeline
