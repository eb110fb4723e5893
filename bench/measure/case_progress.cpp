#include "bench/measure/case_progress.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "bench/measure/timing.h"

namespace noisefloor {
namespace {

constexpr double kLongSeconds = 10, kMinute = 60;

// It is verified, its time is found out, and no phase ends before it has that many samples.
constexpr std::size_t kFewestLaunches = 2 + 2 * StoppingRule::kFewest;

}  // namespace

std::string duration_text(double seconds) {
  const long whole = std::lround(seconds);
  return whole < 60 ? fmt::format("{}s", whole) : fmt::format("{}m{:02}s", whole / 60, whole % 60);
}

CaseProgress::CaseProgress(Say say, Clock clock)
    : say_(std::move(say)), clock_(clock ? std::move(clock) : steady_seconds) {}

void CaseProgress::begin(std::string name, double launch_seconds) {
  if (silent()) return;
  name_ = std::move(name);
  phase_.clear();
  begin_ = clock_();
  due_ = begin_ + kLongSeconds;
  if (launch_seconds >= kLongSeconds)
    say_(fmt::format("{}: by the measured ceilings a launch takes at least {}, and there are at least {} of them",
                     name_, duration_text(launch_seconds), kFewestLaunches));
}

void CaseProgress::enter(std::string phase) {
  phase_ = std::move(phase);
  between();
}

void CaseProgress::between() {
  if (silent()) return;
  const double now = clock_();
  if (now < due_) return;
  due_ = now + (now - begin_ < kMinute ? kLongSeconds : kMinute);
  say_(fmt::format("{}: {} so far, now {}", name_, duration_text(now - begin_), phase_));
}

}  // namespace noisefloor
