#include "bench/measure/tuner.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "bench/measure/timing_loop.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

constexpr int kFirstSamples = 3;
constexpr int kFinalSamples = 15;
constexpr std::size_t kFinalists = 8;

}  // namespace

double Candidate::median_us() const {
  return median(us);
}

std::vector<Candidate*> best_of(std::span<Candidate> candidates, double factor, std::size_t fewest, std::size_t most) {
  std::vector<std::pair<double, Candidate*>> timed;
  for (Candidate& candidate : candidates) timed.emplace_back(candidate.median_us(), &candidate);
  std::stable_sort(timed.begin(), timed.end(), [](const auto& l, const auto& r) { return l.first < r.first; });
  std::vector<Candidate*> best;
  for (std::size_t i = 0; i < timed.size(); ++i) {
    const auto& [us, candidate] = timed[i];
    if (candidate->stays || i < fewest || (i < most && us <= factor * timed.front().first)) best.push_back(candidate);
  }
  return best;
}

std::vector<Candidate*> round_robin(std::vector<Candidate*> candidates, int turns, int samples,
                                    const TakeSamples& sampler) {
  for (int turn = 0; turn < turns; ++turn)
    std::erase_if(candidates, [&](Candidate* candidate) {
      const auto us = sampler(candidate->index, samples);
      if (us) candidate->us.insert(candidate->us.end(), us->begin(), us->end());
      return !us;
    });
  return candidates;
}

// Nothing where the library refuses a launch, or its launch waits for the device.
std::optional<std::vector<double>> HarnessRanker::times(Caches caches, const Launch& launch, int samples) {
  Fixture& fixture = verifier_->fixture();
  Platform& platform = fixture.platform();
  try {
    if (!platform.try_launch(launch)) return std::nullopt;  // also loads the kernel
    if (caches == Caches::cold) return platform.time_cold(launch, samples, fixture.resident());
    const auto warm = [&](int some, int repeats) { return platform.time_warm(launch, some, repeats); };
    return warm(samples, platform.description().is_host ? 1 : probe_warm_launches(warm).repeats);
  } catch (const DeviceError& error) {
    if (error.lost()) throw;
  } catch (const std::runtime_error&) {  // the library refused a later launch
  }
  return std::nullopt;
}

Ranking HarnessRanker::rank(Caches caches, int count, const std::function<Status(int)>& launch) {
  const auto start = std::chrono::steady_clock::now();
  const TakeSamples sampler = [&](std::size_t index, int samples) {
    return times(
        caches, [&] { return launch(static_cast<int>(index)); }, samples);
  };
  Ranking ranking;
  std::vector<Candidate> ran;
  for (int i = 0; i < count; ++i) {
    ++ranking.tried;
    if (auto us = sampler(static_cast<std::size_t>(i), kFirstSamples))
      ran.push_back({static_cast<std::size_t>(i), std::move(*us)});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    if (elapsed.count() > budget_seconds_ && !ran.empty()) break;
  }
  ranking.ran = static_cast<int>(ran.size());
  constexpr double kAny = std::numeric_limits<double>::infinity();
  for (const Candidate* finalist : round_robin(best_of(ran, kAny, 0, kFinalists), 1, kFinalSamples, sampler))
    ranking.fastest.push_back({finalist->median_us(), static_cast<int>(finalist->index)});
  std::sort(ranking.fastest.begin(), ranking.fastest.end(),
            [](const Timed& a, const Timed& b) { return a.microseconds < b.microseconds; });
  if (ranking.fastest.empty())
    ranking.status = failure(StatusCode::unsupported_problem, "the library refused every algorithm that it offered");
  return ranking;
}

bool HarnessRanker::accurate(const std::function<Status()>& launch) {
  verifier_->fixture().reset_outputs();
  return verifier_->fixture().platform().try_launch(launch) && verifier_->judge_outputs().correct;
}

void tune_ready(Ready& ready, Verifier& verifier, const Scratch& scratch) {
  Fixture& fixture = verifier.fixture();
  HarnessRanker ranker(verifier);
  verifier.expect();  // so that every element is judged
  ready.tune(fixture.pointers(), scratch, fixture.platform().context(), ranker);
  fixture.platform().synchronize();
}

}  // namespace noisefloor
