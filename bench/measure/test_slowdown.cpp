#include "bench/measure/test_slowdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
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
    throw_if_failed(spin(platform, 0));  // loaded now: a kernel's first launch waits for the device
    platform.synchronize();
    const auto chain_us = [&](double nanoseconds) {
      const auto one = [&platform, nanoseconds] { return spin(platform, nanoseconds); };
      return median(platform.time_warm(one, kSamples, kInChain));
    };
    (void)chain_us(0);  // clocks
    fixed = chain_us(0);
    per_nanosecond = (chain_us(kNanoseconds) - fixed) / kNanoseconds;
  }
};

struct Spins {
  Platform& platform;
  double percent;
  SpinCost cost{platform};
  std::map<std::pair<std::string, int>, double> nanoseconds{};  // by phase and repeats; below 0: none

  double find(const std::string& phase, const Launch& launch, int repeats, const TimeLaunch& time) const {
    const int samples = samples_for(time(launch, 1).front() * repeats);
    const auto median_us = [&](const Launch& timed) { return median(time(timed, samples)); };
    (void)median_us(launch);  // clocks
    const double alone_us = median_us(launch);
    const double fixed = phase == "cold" ? median_us(with_spin(platform, launch, 0, 1)) - alone_us : cost.fixed;
    const double found = (alone_us * percent / 100 * repeats - fixed) / cost.per_nanosecond;
    if (found <= 0) {
      fmt::print(stderr, "test slow-down, {}: left as it is\n", phase);
      return -1;
    }
    const double reached_us = median_us(with_spin(platform, launch, found, repeats));
    fmt::print(stderr, "test slow-down, {}: {:.2f} % wanted, {:.2f} % reached on {:.2f} us\n", phase, percent,
               100 * (reached_us / alone_us - 1), alone_us);
    return found;
  }
};

}  // namespace

Slowed test_slowdown(Platform& platform, double percent) {
  return [spins = std::make_shared<Spins>(platform, percent)](const char* phase, const Launch& launch, int repeats,
                                                              const TimeLaunch& time) {
    Platform& on = spins->platform;
    const auto [spin_ns, is_new] = spins->nanoseconds.try_emplace({phase, repeats}, 0);
    if (is_new) {
      spin_ns->second = spins->find(phase, launch, repeats, time);
      // That keeps the GPU busy for half a second, in which it meets its power cap; what is timed then would run at a
      // lower clock than the same in a build without.
      on.synchronize();
      if (!on.description().is_host) std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
    return spin_ns->second > 0 ? with_spin(on, launch, spin_ns->second, repeats) : launch;
  };
}

double slowdown_percent(double of_build) {
  const char* const text = std::getenv("NOISEFLOOR_TEST_SLOWDOWN_PERCENT");
  if (text == nullptr) return of_build;
  char* end = nullptr;
  const double percent = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(percent >= 0 && percent <= 100))
    throw std::invalid_argument(fmt::format("NOISEFLOOR_TEST_SLOWDOWN_PERCENT='{}': 0 to 100", text));
  return percent;
}

}  // namespace noisefloor
