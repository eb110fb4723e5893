#include "bench/measure/test_slowdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

Status spin(Platform& platform, double nanoseconds) {
#ifdef NOISEFLOOR_HAS_CUDA
  if (!platform.description().is_host) return enqueue_spin(platform.context().stream, nanoseconds);
#endif
  (void)platform;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double, std::nano>(nanoseconds);
  while (std::chrono::steady_clock::now() < until) {
  }
  return success();
}

// With a spin behind every `repeats`-th call.
Launch with_spin(Platform& platform, const Launch& launch, double nanoseconds, int repeats) {
  return [&platform, launch, nanoseconds, repeats, calls = 0]() mutable {
    const Status status = launch();
    return status.ok() && ++calls % repeats == 0 ? spin(platform, nanoseconds) : status;
  };
}

// The spin by which cold launches come out `percent` longer; nothing where its own launch costs more. `median_us` gives
// the median time of a launch with a spin so long, or with none.
std::optional<double> adjusted_spin(double percent, const std::function<double(std::optional<double>)>& median_us) {
  (void)median_us({});  // clocks
  double alone_us = median_us({});
  double nanoseconds = alone_us * percent * 10;
  constexpr int kSteps = 6;
  constexpr double kCloseEnough = 0.03;  // of what is wanted
  // The spin's nanoseconds are cycles at 1 GHz, and SMs run at one to two: a step then leaves at most half of an error.
  constexpr double kStep = 1.5;
  for (int step = 0; step < kSteps; ++step) {
    const double reached_us = median_us(nanoseconds);
    alone_us = median_us({});
    const double reached = 100 * (reached_us / alone_us - 1);
    fmt::print(stderr, "test slow-down, cold: {:.2f} % wanted, {:.2f} % reached on {:.2f} us\n", percent, reached,
               alone_us);
    if (std::abs(reached - percent) <= kCloseEnough * percent) break;
    if (step + 1 < kSteps) nanoseconds += kStep * 1e3 * (alone_us * (1 + percent / 100) - reached_us);
    if (nanoseconds > 0) continue;
    fmt::print(stderr, "test slow-down, cold: left as it is\n");
    return std::nullopt;
  }
  return nanoseconds;
}

// Finding a spin keeps the GPU busy for half a second, in which it meets its power cap; what is timed then would run at
// a lower clock than the same in a build without.
void rest(Platform& platform) {
  platform.synchronize();
  if (!platform.description().is_host) std::this_thread::sleep_for(std::chrono::milliseconds(150));
}

// About 30 ms for a median: six batches of the case runner for a small kernel.
int samples_for(double sample_us) {
  return std::clamp(static_cast<int>(30e3 / (sample_us + 50)), 7, 300);
}

// What a spin takes in a chain of them, which is what it adds to a chain of others: us = fixed + per_nanosecond *
// nanoseconds.
struct SpinCost {
  double fixed, per_nanosecond;

  explicit SpinCost(Platform& platform) {
    constexpr int kInChain = 20, kSamples = 200;
    constexpr double kNanoseconds = 10e3;
    const auto chain_us = [&](double nanoseconds) {
      const auto one = [&platform, nanoseconds] { return spin(platform, nanoseconds); };
      return median(platform.time_warm(one, kSamples, kInChain));
    };
    (void)chain_us(0);  // clocks
    fixed = chain_us(0);
    per_nanosecond = (chain_us(kNanoseconds) - fixed) / kNanoseconds;
  }
};

// The same in samples of `repeats` launches, found when it is first asked for: by what a spin takes by itself, because
// the difference of two warm medians scatters by much of what is wanted.
class SlowedWarm {
 public:
  SlowedWarm(Platform& platform, double percent) : platform_(&platform), percent_(percent) {}

  Launch operator()(const Launch& launch, TimingSource::Edges edges, int repeats) {
    if (!spins_.contains({edges, repeats})) {
      spins_[{edges, repeats}] = find(launch, edges == TimingSource::Edges::pipeline ? "warm" : "warm serial", repeats);
      rest(*platform_);
    }
    const auto spun = spins_.at({edges, repeats});
    return spun ? with_spin(*platform_, launch, *spun, repeats) : launch;
  }

 private:
  std::optional<double> find(const Launch& launch, const char* what, int repeats) {
    if (!cost_) cost_ = SpinCost(*platform_);
    const int samples = samples_for(platform_->time_warm(launch, 1, repeats).front() * repeats);
    const auto median_us = [&](const Launch& timed) { return median(platform_->time_warm(timed, samples, repeats)); };
    (void)median_us(launch);  // clocks
    const double alone_us = median_us(launch);
    const double nanoseconds = (alone_us * percent_ / 100 * repeats - cost_->fixed) / cost_->per_nanosecond;
    if (nanoseconds <= 0) {
      fmt::print(stderr, "test slow-down, {}: left as it is\n", what);
      return std::nullopt;
    }
    const double reached_us = median_us(with_spin(*platform_, launch, nanoseconds, repeats));
    fmt::print(stderr, "test slow-down, {}: {:.2f} % wanted, {:.2f} % reached on {:.2f} us\n", what, percent_,
               100 * (reached_us / alone_us - 1), alone_us);
    return nanoseconds;
  }

  std::optional<SpinCost> cost_;
  Platform* platform_;
  double percent_;
  std::map<std::pair<TimingSource::Edges, int>, std::optional<double>> spins_;  // nanoseconds
};

}  // namespace

void slow_down(Platform& platform, PlatformTiming::Ranges resident, double percent,
               PlatformTiming::Launches& launches) {
  // Loaded now: a kernel's first launch waits for the device, behind the gate forever.
  throw_if_failed(spin(platform, 0));
  platform.synchronize();
  const int samples = samples_for(platform.time_cold(launches.cold, 1, resident).front());
  const auto spun = adjusted_spin(percent, [&](std::optional<double> nanoseconds) {
    const Launch timed = nanoseconds ? with_spin(platform, launches.cold, *nanoseconds, 1) : launches.cold;
    return median(platform.time_cold(timed, samples, resident));
  });
  rest(platform);
  if (spun) launches.cold = with_spin(platform, launches.cold, *spun, 1);
  launches.slowed = [warm = std::make_shared<SlowedWarm>(platform, percent)](const Launch& launch,
                                                                             TimingSource::Edges edges, int repeats) {
    return (*warm)(launch, edges, repeats);
  };
}

double slowdown_percent(double of_build) {
  const char* text = std::getenv("NOISEFLOOR_TEST_SLOWDOWN_PERCENT");
  if (text == nullptr) return of_build;
  const std::string_view view(text);
  double percent = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), percent);
  if (error != std::errc() || end != view.data() + view.size() || !(percent >= 0 && percent <= 100))
    throw std::invalid_argument(fmt::format("NOISEFLOOR_TEST_SLOWDOWN_PERCENT='{}': 0 to 100", view));
  return percent;
}

}  // namespace noisefloor
