#include "bench/pipeline/training_recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <numbers>
#include <vector>

#include "kernels/core/fields.h"
#include "kernels/core/listed.h"

namespace noisefloor::pipeline {
namespace {

// digits, moving-digits: Karras et al. (NeurIPS 2022, table 1), as baselines/pytorch/digits/train.py trains them,
// without dropout and without stills beside the videos. edm-cifar and adm64: their papers', at batches of one GPU.
// unetcu: unet.cu's, with the moving average of its script.
using Recipes = std::map<std::string, TrainingRecipe, std::less<>>;
const Recipes& recipes() {
  static const Recipes kAll = {
      {"digits",
       {.batch = 512,
        .steps = 4000,
        .warm_up = 200,
        .rate = 1e-3,
        .ema = 500,
        .shift = 0.1,
        .unlabelled = 0.1,
        .p_mean = -0.4,
        .p_std = 1.2}},
      {"moving-digits",
       {.batch = 128,
        .steps = 8000,
        .warm_up = 200,
        .rate = 2e-3,
        .ema = 500,
        .unlabelled = 0.1,
        .p_mean = 0.4,
        .p_std = 1.4}},
      {"mnist-unet",
       {.batch = 128,
        .steps = 5000,
        .warm_up = 200,
        .rate = 5e-4,
        .ema = 500,
        .unlabelled = 0.1,
        .p_mean = -0.4,
        .p_std = 1.4}},
      {"unetcu", {.batch = 32, .steps = 100'000, .rate = 1e-4, .final_rate = 1, .beta2 = 0.999, .ema = 7000}},
      {"edm-cifar",
       {.batch = 64,
        .steps = 400'000,
        .warm_up = 10'000,
        .rate = 2e-4,
        .final_rate = 1,
        .beta2 = 0.999,
        .ema = 8000,
        .flip = 0.5,
        .unlabelled = 0.1}},
      {"adm64",
       {.batch = 32,
        .steps = 500'000,
        .rate = 1e-4,
        .final_rate = 1,
        .beta2 = 0.999,
        .ema = 7000,
        .flip = 0.5,
        .unlabelled = 0.1}},
  };
  return kAll;
}

constexpr double kMostSteps = 1e9;

}  // namespace

std::span<const RecipeField> recipe_fields() {
  using Recipe = TrainingRecipe;
  static const RecipeField all[] = {
      {"batch", "images of a step, of which a network may take fewer", &Recipe::batch, 1, 32767},
      {"steps", "steps", &Recipe::steps, 1, kMostSteps},
      {"rate", "learning rate", &Recipe::rate, 0, 1000, true},
      {"warm-up", "first steps, in which the learning rate grows", &Recipe::warm_up, 0, kMostSteps},
      {"final-rate", "share of the learning rate at the end, to which it falls along a cosine; 1: it does not fall",
       &Recipe::final_rate, 0, 1},
      {"decay", "weight decay of AdamW", &Recipe::decay, 0, 1},
      {"beta1", "AdamW's first beta", &Recipe::beta1, 0, 0.9999},
      {"beta2", "AdamW's second beta", &Recipe::beta2, 0, 0.999999},
      {"ema", "half-life in steps of the moving average of the weights, which is what is written; 0: the weights",
       &Recipe::ema, 0, kMostSteps},
      {"clip", "most that the norm of all gradients may be; 0: any", &Recipe::clip, 0, 1e9},
      {"shift", "share of the images moved by up to one pixel", &Recipe::shift, 0, 1},
      {"flip", "share of the images mirrored", &Recipe::flip, 0, 1},
      {"unlabelled", "share of the images without their label, which guidance needs", &Recipe::unlabelled, 0, 1},
      {"p-mean", "mean of the logarithm of noise levels", &Recipe::p_mean, -5, 5},
      {"p-std", "deviation of the logarithm of noise levels", &Recipe::p_std, 0, 3},
      {"seed", "seed of the first weights and of all that steps draw", &Recipe::seed, 0, 0x1p53 - 1}};
  return all;
}

std::string RecipeField::text(const TrainingRecipe& recipe) const {
  return std::visit([&](auto member) { return fmt::format("{}", recipe.*member); }, value);
}

std::string RecipeField::range() const {
  return fmt::format("{}{} to {}", above ? "above " : "", least, most);
}

void RecipeField::set(TrainingRecipe& recipe, const std::string& text) const {
  const bool betas = std::string_view(name).starts_with("beta");
  std::visit(
      [&](auto member) {
        auto number = recipe.*member;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        const auto there = static_cast<double>(number);
        if (error != std::errc() || end != text.data() + text.size() || !(there >= least && there <= most) ||
            (above && there == least))
          throw InvalidInput(fmt::format("{} {}: the range is {}{}", betas ? "--betas" : option(), text, range(),
                                         std::is_integral_v<decltype(number)> ? ", whole numbers" : ""));
        recipe.*member = number;
      },
      value);
}

double TrainingRecipe::rate_at(std::int64_t step) const {
  const double now = static_cast<double>(step);
  const double risen = warm_up > 0 ? std::min(1.0, now / static_cast<double>(warm_up)) : 1;
  const double fallen = (1 + std::cos(std::numbers::pi * now / static_cast<double>(steps))) / 2;
  return rate * risen * (final_rate + (1 - final_rate) * fallen);
}

double TrainingRecipe::ema_kept_at(std::int64_t step) const {
  return ema == 0 ? 0 : std::pow(0.5, 1 / std::min(ema, static_cast<double>(step) / 10 + 1));
}

std::array<float, 4> TrainingRecipe::rates_at(std::int64_t step) const {
  const auto unbiased = [&](double beta) {
    return static_cast<float>(1 / (1 - std::pow(beta, static_cast<double>(step))));
  };
  return {static_cast<float>(rate_at(step)), unbiased(beta1), unbiased(beta2), static_cast<float>(ema_kept_at(step))};
}

std::array<float, 2> TrainingRecipe::number_of(std::int64_t step) {
  return {static_cast<float>(step & 0xffff), static_cast<float>(step >> 16)};
}

const TrainingRecipe& recipe_of(std::string_view network) {
  if (const auto found = recipes().find(network); found != recipes().end()) return found->second;
  throw InvalidInput(fmt::format("{} cannot be trained; {} can", network, networks_with_recipes()));
}

TrainingRecipe recipe_or_usual(std::string_view network) {
  return recipes().contains(network) ? recipe_of(network) : TrainingRecipe{};
}

std::string networks_with_recipes() {
  std::vector<std::string> names;
  for (const auto& [name, recipe] : recipes()) names.push_back(name);
  return listed(names, "and");
}

}  // namespace noisefloor::pipeline
