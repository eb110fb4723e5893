// How a network is trained: the numbers that an option each sets, a network's own where none does.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

namespace noisefloor::pipeline {

struct TrainingRecipe {
  std::int64_t batch = 1, steps = 1, warm_up = 0, seed = 0;
  double rate = 0, final_rate = 0.1, decay = 0, beta1 = 0.9, beta2 = 0.99, ema = 0, clip = 0;
  double shift = 0, flip = 0, unlabelled = 0;
  double p_mean = -1.2, p_std = 1.2;

  // Steps count from 1. The learning rate rises for the warm-up's steps, and falls along a cosine to final_rate of it.
  double rate_at(std::int64_t step) const;
  // What a step keeps of the moving average, whose half-life grows with the first steps.
  double ema_kept_at(std::int64_t step) const;
  std::array<float, 4> rates_at(std::int64_t step) const;    // as adamw takes them
  static std::array<float, 2> number_of(std::int64_t step);  // as training_batch takes it
};

struct RecipeField {
  const char *name, *meaning;
  std::variant<std::int64_t TrainingRecipe::*, double TrainingRecipe::*> value;
  double least, most;
  bool above = false;  // the least itself is too little

  std::string text(const TrainingRecipe& recipe) const;
  std::string option() const { return std::string("--") + name; }  // "--warm-up"
  std::string range() const;
  // Throws InvalidInput that names the option and the range.
  void set(TrainingRecipe& recipe, const std::string& text) const;
};
std::span<const RecipeField> recipe_fields();

// Throws InvalidInput that names the networks which have one.
const TrainingRecipe& recipe_of(std::string_view network);
TrainingRecipe recipe_or_usual(std::string_view network);  // one without trains by the numbers above
std::string networks_with_recipes();                       // "a, b and c"

}  // namespace noisefloor::pipeline
