// Where the time of counting goes: what each step of a RangeProfiler took on the host's clock, for whoever asks.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace noisefloor {

struct CountingCost {
  std::string step;  // a call of CUPTI by its name, or one of the caller's own
  int times = 0;
  double ms = 0;  // all of them together
};

// In the order in which the steps were first taken.
class CountingCosts {
 public:
  const std::vector<CountingCost>& steps() const { return steps_; }

  const CountingCost* find(std::string_view step) const {
    for (const CountingCost& cost : steps_)
      if (cost.step == step) return &cost;
    return nullptr;
  }

  double total_ms() const {
    double sum = 0;
    for (const CountingCost& cost : steps_) sum += cost.ms;
    return sum;
  }

  // The index of a step, which is entered with no time where it is new.
  std::size_t enter(std::string_view step) {
    for (std::size_t i = 0; i < steps_.size(); ++i)
      if (steps_[i].step == step) return i;
    steps_.push_back({std::string(step)});
    return steps_.size() - 1;
  }

  void add(std::size_t index, double ms) noexcept {
    ++steps_[index].times;
    steps_[index].ms += ms;
  }

 private:
  std::vector<CountingCost> steps_;
};

// A step, from construction to destruction; nothing where `costs` is null.
class TimedStep {
 public:
  TimedStep(CountingCosts* costs, std::string_view step)
      : TimedStep(costs, costs == nullptr ? 0 : costs->enter(step)) {}
  // One that was entered before: needs no memory, so it may stand in a destructor.
  TimedStep(CountingCosts* costs, std::size_t index) noexcept
      : costs_(costs), index_(index), start_(std::chrono::steady_clock::now()) {}
  ~TimedStep() {
    if (costs_ == nullptr) return;
    costs_->add(index_, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count());
  }
  TimedStep(const TimedStep&) = delete;
  TimedStep& operator=(const TimedStep&) = delete;

 private:
  CountingCosts* costs_;
  std::size_t index_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace noisefloor
