// What a training says and keeps as its steps are taken.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/commands/output_files.h"
#include "bench/pipeline/trainer.h"
#include "reports/run/files.h"

namespace noisefloor {

using pipeline::Trainer;
using pipeline::TrainingRecipe;

// step,loss,gradient_norm,rate: a line a step. Written whole, now and then: a training that goes on keeps the lines of
// the steps before.
class Losses {
 public:
  Losses(std::string file, std::int64_t taken) : file_(std::move(file)) {
    std::error_code error;
    if (taken == 0 || !fs::is_regular_file(file_, error)) return;
    std::istringstream text(read_whole_file(file_));
    std::string line;
    std::int64_t first = 0, others = -1;  // lines that are left out
    std::getline(text, line);
    for (std::int64_t number = 2; std::getline(text, line); ++number) {
      long long step = 0;
      int end = 0;
      (void)std::sscanf(line.c_str(), "%lld,%*f,%*f,%*f %n", &step, &end);
      if (text.eof() || end != std::ssize(line))
        first = ++others == 0 ? number : first;
      else if (step >= 1 && step <= taken)
        text_ += line + '\n';
    }
    if (others >= 0)
      fmt::print(stderr, "--losses {}: line {}{} left out: not a whole line of step, loss, norm and rate\n", file_,
                 first, others == 0 ? " is" : fmt::format(" and {} more are", others));
  }

  void add(const std::vector<Trainer::Step>& steps, const TrainingRecipe& recipe) {
    if (file_.empty()) return;
    for (const auto& [number, loss, norm] : steps)
      text_ += fmt::format("{},{:.9g},{:.9g},{:.7g}\n", number, loss, norm, recipe.rate_at(number));
  }
  // On the way: what cannot be written then ends no training. A pipe or a device gets all at the end.
  void keep() {
    try {
      write(false);
    } catch (const std::runtime_error& error) {
      if (!std::exchange(told_, true)) fmt::print(stderr, "\n{}\n", error.what());
    }
  }
  void write(bool at_end = true) const {
    OutputFiles files;
    files.add("--losses", file_);
    if (file_.empty() || (files.is_stream("--losses") && !at_end)) return;
    files.write("--losses", text_);
    files.commit();
  }

 private:
  std::string file_, text_ = "step,loss,gradient_norm,rate\n";
  bool told_ = false;  // that they cannot be written
};

// A line on stderr, rewritten as steps are taken; ended whatever ends the training.
class TrainingLine {
 public:
  TrainingLine(const TrainingRecipe& recipe, std::int64_t taken) : recipe_(&recipe), first_(taken) {}
  TrainingLine(const TrainingLine&) = delete;
  ~TrainingLine() { end(); }
  void end() {
    if (std::exchange(shown_, false)) fmt::print(stderr, "\n");
  }

  void show(const std::vector<Trainer::Step>& steps, double seconds) {
    for (const Trainer::Step& step : steps) losses_.push_back(step.loss);
    if (losses_.size() > kOfMean) losses_.erase(losses_.begin(), losses_.end() - kOfMean);
    seconds_ += seconds;
    const std::int64_t taken = steps.back().number;
    const double a_step = seconds_ / static_cast<double>(taken - first_);
    images_a_second_ = static_cast<double>(recipe_->batch) / a_step;
    fmt::print(stderr, "\rstep {}/{}: loss {:.4f}, {:.0f} images/s, ETA {} ", taken, recipe_->steps, loss(),
               images_a_second_, clock_text(a_step * static_cast<double>(recipe_->steps - taken)));
    std::fflush(stderr);
    shown_ = true;
  }
  double loss() const {  // the mean of the last steps
    double sum = 0;
    for (const float loss : losses_) sum += loss;
    return sum / static_cast<double>(losses_.size());
  }
  double images_a_second() const { return images_a_second_; }
  double seconds() const { return seconds_; }

 private:
  static constexpr std::size_t kOfMean = 100;  // a single step's loss is mostly noise
  static std::string clock_text(double seconds) {
    const auto whole = static_cast<std::int64_t>(seconds);
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }

  const TrainingRecipe* recipe_;
  std::int64_t first_;
  std::vector<float> losses_;
  double seconds_ = 0, images_a_second_ = 0;
  bool shown_ = false;
};

// Keeps the state now and then, so that few steps are taken again where one is not finite.
class Keeper {
 public:
  void kept() { last_ = Clock::now(); }
  void keep_if_due(Trainer& trainer) {
    const double since = std::chrono::duration<double>(Clock::now() - last_).count();
    if (since < std::max(30.0, 100 * takes_)) return;  // a hundredth of the time at most
    last_ = Clock::now();
    trainer.keep();
    takes_ = std::chrono::duration<double>(Clock::now() - last_).count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  double takes_ = 0;
};

}  // namespace noisefloor
