// The host with a clock of the test's own: a launch takes what it adds to `clock_us`, and is done as the host does it.
#pragma once

#include <functional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/measure/implementation.h"
#include "tests/support/wrapped_host.h"

namespace noisefloor {

// `variant`, behind whose launches `after` is called with their tensors.
inline AnyVariant followed_by(AnyVariant variant, std::function<void(std::span<void* const>)> after) {
  variant.launch = [launch = variant.launch, after = std::move(after)](const auto&... given) {
    const Status status = launch(given...);
    after(std::get<2>(std::tie(given...)));
    return status;
  };
  return variant;
}

class ScriptedPlatform : public WrappedHost {
 public:
  double clock_us = 0;
  bool warm = false;                            // while warm launches are timed
  std::vector<int> cold_calls;                  // samples
  std::vector<std::pair<int, int>> warm_calls;  // samples, repeats

  std::vector<double> time_cold(const Launch& launch, int samples,
                                std::span<const std::pair<void*, std::size_t>>) override {
    cold_calls.push_back(samples);
    return timed(launch, samples, 1);
  }
  std::vector<double> time_warm(const Launch& launch, int samples, int repeats, KeptGraphs*) override {
    warm_calls.emplace_back(samples, repeats);
    warm = true;
    auto times = timed(launch, samples, repeats);
    warm = false;
    return times;
  }

  // `variant`, whose launches take `us` on this platform, which must outlive it.
  AnyVariant taking(double us, AnyVariant variant) {
    return followed_by(std::move(variant), [this, us](std::span<void* const>) { clock_us += us; });
  }

 private:
  std::vector<double> timed(const Launch& launch, int samples, int repeats) {
    std::vector<double> times;
    for (int i = 0; i < samples; ++i) {
      const double start = clock_us;
      for (int j = 0; j < repeats; ++j) throw_if_failed(launch());
      times.push_back((clock_us - start) / repeats);
    }
    return times;
  }
};

}  // namespace noisefloor
