#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "bench/pipeline/sampling.h"

namespace noisefloor::pipeline {
namespace {

using networks::Network;
using sampler_step::CoefficientRow;
using sampler_step::Coefficients;

using Kind = networks::NetworkTensor::Kind;

// x + level y, for so many images: of q_sample.
void add_levels(std::vector<float>& levels, std::int64_t images, double level) {
  for (std::int64_t i = 0; i < images; ++i) levels.insert(levels.end(), {1.0f, static_cast<float>(level)});
}

std::vector<float> guidance_levels(const Network& network, const SamplingOptions& options) {
  std::vector<float> levels;
  const std::int64_t frames = network.image.frames;
  for (std::int64_t i = 0; i < network.batch * frames; ++i) {
    const double part = frames == 1 ? 0 : static_cast<double>(i % frames) / static_cast<double>(frames - 1);
    const double guidance = *options.first_guidance + part * (options.guidance - *options.first_guidance);
    levels.insert(levels.end(), {static_cast<float>(1 - guidance), static_cast<float>(guidance)});
  }
  return levels;
}

}  // namespace

StepTables::StepTables(Platform& platform, const Network& network, const SamplingOptions& options,
                       std::span<const StepPlan> steps)
    : levels_bytes_(static_cast<std::size_t>(2 * network.batch) * sizeof(float)),
      told_bytes_(static_cast<std::size_t>(network.calls) * sizeof(float)),
      older_a_step_(static_cast<std::size_t>(options.row().older)) {
  std::vector<Coefficients> rows, second_rows;
  std::vector<float> churn, older;
  std::vector<std::pair<double, double>> told;  // sigma and timestep of every call of the network
  for (const StepPlan& step : steps) {
    rows.push_back(rounded(step.row));
    second_rows.push_back(rounded(step.second.value_or(CoefficientRow<double>{})));
    add_levels(churn, network.batch,
               std::sqrt(std::max(0.0, step.sigma * step.sigma - step.churned_from * step.churned_from)));
    for (std::size_t k = 0; k < older_a_step_; ++k)
      add_levels(older, network.batch, k < step.older.size() ? step.older[k] : 0);
    told.emplace_back(step.sigma, step.timestep);
    if (step.second) told.emplace_back(step.sigma_next, step.timestep_next);
  }
  if (options.ends_noisy) {  // to the op its last step is one of the middle
    rows.emplace_back();
    second_rows.emplace_back();
  }
  if (const auto ahead = static_cast<std::size_t>(network.hoisted_levels); ahead > 0) {
    if (told.size() > ahead) throw std::logic_error("a loop of more calls than its network has levels ahead");
    told.resize(ahead, told.back());  // of another, longer loop
  }
  const auto images = static_cast<std::size_t>(network.calls);
  std::vector<float> sigmas, timesteps;
  for (const auto& [sigma, timestep] : told) {
    sigmas.insert(sigmas.end(), images, static_cast<float>(sigma));
    if (network.find(Kind::timesteps) != nullptr)
      timesteps.insert(timesteps.end(), images, static_cast<float>(timestep));
  }
  const auto keep = [&](Buffer& buffer, const auto& numbers) {
    if (numbers.empty()) return;
    buffer = Buffer(platform, numbers.size() * sizeof(numbers[0]));
    platform.upload(buffer.data(), numbers.data(), buffer.bytes());
  };
  keep(rows_, rows);
  keep(second_rows_, second_rows);
  keep(churn_, churn);
  keep(older_, older);
  if (options.guidance_grows()) keep(guidance_, guidance_levels(network, options));
  keep(sigmas_, sigmas);
  keep(timesteps_, timesteps);
}

std::size_t StepTables::bytes(const Network& network, const SamplingOptions& options) {
  const auto steps = static_cast<std::size_t>(options.steps), batch = static_cast<std::size_t>(network.batch);
  const auto told = static_cast<std::size_t>(network.calls), older = static_cast<std::size_t>(options.row().older);
  const std::size_t calls = std::max(options.halves().size() * steps, static_cast<std::size_t>(network.hoisted_levels));
  const std::size_t guided = options.guidance_grows() ? 2 * batch * static_cast<std::size_t>(network.image.frames) : 0;
  return sizeof(float) * (2 * (steps + 1) * sampler_step::kRowLength + 2 * (1 + older) * batch * steps + guided +
                          calls * told * (network.find(Kind::timesteps) != nullptr ? 2 : 1));
}

}  // namespace noisefloor::pipeline
