#include "bench/measure/tuner.h"

#include <algorithm>
#include <chrono>

#include "bench/measure/timing_loop.h"
#include "reports/statistics.h"

namespace noisefloor {
namespace {

constexpr int kFirstSamples = 3;
constexpr int kFinalSamples = 15;
constexpr std::size_t kFinalists = 8;

}  // namespace

void HarnessRanker::require_time() const {
  if (std::chrono::steady_clock::now() >= until_) throw BudgetSpent();
}

// Nothing where the library refuses a launch, or its launch waits for the device.
std::optional<double> HarnessRanker::median_us(Caches caches, const Launch& launch, int samples) {
  Fixture& fixture = verifier_->fixture();
  Platform& platform = fixture.platform();
  try {
    if (!platform.try_launch(launch)) return std::nullopt;  // also loads the kernel
    if (caches == Caches::cold) return median(platform.time_cold(launch, samples, fixture.resident()));
    const auto warm = [&](int some, int repeats) { return platform.time_warm(launch, some, repeats); };
    return median(warm(samples, platform.description().is_host ? 1 : probe_warm_launches(warm).repeats));
  } catch (const DeviceError& error) {
    if (error.lost()) throw;
  } catch (const std::runtime_error&) {  // the library refused a later launch
  }
  return std::nullopt;
}

Ranking HarnessRanker::rank(Caches caches, int count, const std::function<Status(int)>& launch) {
  const auto start = std::chrono::steady_clock::now();
  const auto faster = [](const Timed& a, const Timed& b) { return a.microseconds < b.microseconds; };
  Ranking ranking;
  std::vector<Timed> first;
  for (int i = 0; i < count; ++i) {
    require_time();
    ++ranking.tried;
    if (const auto us = median_us(
            caches, [&] { return launch(i); }, kFirstSamples))
      first.push_back({*us, i});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > budget_seconds_ && !first.empty()) break;
  }
  ranking.ran = static_cast<int>(first.size());
  std::sort(first.begin(), first.end(), faster);
  first.resize(std::min(first.size(), kFinalists));
  for (const Timed& finalist : first)
    if (const auto us = median_us(
            caches, [&] { return launch(finalist.index); }, kFinalSamples))
      ranking.fastest.push_back({*us, finalist.index});
  std::sort(ranking.fastest.begin(), ranking.fastest.end(), faster);
  if (ranking.fastest.empty())
    ranking.status = failure(StatusCode::unsupported_problem, "the library refused every algorithm that it offered");
  return ranking;
}

bool HarnessRanker::accurate(const std::function<Status()>& launch) {
  require_time();
  verifier_->fixture().reset_outputs();
  return verifier_->fixture().platform().try_launch(launch) && verifier_->judge_outputs().correct;
}

void tune_ready(Ready& ready, Verifier& verifier, const Scratch& scratch, Deadline until) {
  Fixture& fixture = verifier.fixture();
  HarnessRanker ranker(verifier, HarnessRanker::kBudgetSeconds, until);
  verifier.expect();  // so that every element is judged
  ready.tune(fixture.pointers(), scratch, fixture.platform().context(), ranker);
  fixture.platform().synchronize();
}

}  // namespace noisefloor
