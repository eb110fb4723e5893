#include "bench/measure/test_slowdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "reports/statistics.h"

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

}  // namespace

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

Launch slowed_down(Platform& platform, const Launch& launch, std::span<const std::pair<void*, std::size_t>> resident,
                   double percent) {
  const auto slowed = [&platform, launch](double nanoseconds) -> Launch {
    return [&platform, launch, nanoseconds] {
      const Status status = launch();
      return status.ok() ? spin(platform, nanoseconds) : status;
    };
  };
  throw_if_failed(
      spin(platform, 0));  // loaded now: a kernel's first launch waits for the device, behind the gate forever
  platform.synchronize();
  const double probe_us = platform.time_cold(launch, 1, resident).front();
  // About 30 ms for a median: six batches of the case runner for a small kernel.
  const int samples = std::clamp(static_cast<int>(30e3 / (probe_us + 50)), 7, 300);
  const auto median_us = [&](const Launch& timed) { return median(platform.time_cold(timed, samples, resident)); };
  (void)median_us(launch);  // clocks
  double alone_us = median_us(launch);
  double nanoseconds = alone_us * percent * 10;
  double reached_us = 0;
  constexpr int kSteps = 4;
  for (int step = 0; step < kSteps; ++step) {
    reached_us = median_us(slowed(nanoseconds));
    alone_us = median_us(launch);
    if (step + 1 < kSteps)
      nanoseconds = std::max(0.0, nanoseconds + 1e3 * (alone_us * (1 + percent / 100) - reached_us));
  }
  fmt::print(stderr, "test slow-down: {:.2f} % wanted, {:.2f} % reached on {:.2f} us\n", percent,
             100 * (reached_us / alone_us - 1), alone_us);
  return slowed(nanoseconds);
}

}  // namespace noisefloor
