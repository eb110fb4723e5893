// How the harness searches for the fastest of many: few times of all, more of those near the best. And how it chooses
// so among the algorithms of a library, by its own times and its own verifier. That search has the steps of
// tune_case, and differs in who asks: a library does, in the middle of a sweep, and takes the next one
// where the fastest is inaccurate.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/measure/verify.h"
#include "bench/platform/platform.h"
#include "reports/run/statistics.h"

namespace noisefloor {

// One way to launch what is searched.
struct Candidate {
  std::size_t index;
  std::vector<double> us;  // its samples so far
  bool stays = false;      // in every cut: the others are compared with it
  double median_us() const { return median(us); }
};

// At most `most` of those within `factor` of the best median, but no fewer than `fewest`, and those that stay; best
// first.
std::vector<Candidate*> best_of(std::span<Candidate> candidates, double factor, std::size_t fewest, std::size_t most);

// Samples of a way to launch; none: it cannot be launched.
using TakeSamples = std::function<std::optional<std::vector<double>>(std::size_t index, int samples)>;

// Adds samples to each in turns, so that a clock that drifts favours none. Returns those that were launched each time.
std::vector<Candidate*> round_robin(std::vector<Candidate*> candidates, int turns, int samples,
                                    const TakeSamples& sampler);

// Every algorithm is sampled three times and the eight fastest fifteen times more. No further algorithms are begun once
// `budget_seconds` are spent.
class HarnessRanker final : public Ranker {
 public:
  static constexpr double kBudgetSeconds = 4;
  explicit HarnessRanker(Verifier& verifier, double budget_seconds = kBudgetSeconds)
      : verifier_(&verifier), budget_seconds_(budget_seconds) {}
  Ranking rank(Caches caches, int count, const std::function<Status(int)>& launch) override;
  bool accurate(const std::function<Status()>& launch) override;

 private:
  std::optional<std::vector<double>> times(Caches caches, const Launch& launch, int samples);

  Verifier* verifier_;
  double budget_seconds_;
};

// Lets a library choose its algorithm on the verifier's fixture and its prepared weights, whose outputs are
// overwritten. Throws as Ready::tune does.
void tune_ready(Ready& ready, Verifier& verifier, const Scratch& scratch);

// The tuner of variants: which of the choices that one offers (kernels/core/variant.h) is the fastest of a problem.
struct TimedChoice {
  Choice choice;
  std::vector<double> warm, cold;  // microseconds of a launch
  double warm_us() const { return median(warm); }
  double cold_us() const { return median(cold); }
};

struct TunedCase {
  std::vector<TimedChoice> best;  // best warm time first
  std::string why_not;            // there are none
  bool failed = false;            // a choice was wrong, or a launch failed
  bool lost = false;              // the device takes no more work
};
// The case's variant must offer choices, and run its problem on this platform. Every choice gets one warm time; those
// near the best then get more, in turns, so that a clock that drifts favours none; the last of them, and the
// estimate's, are verified and timed cold, in turns. A choice that cannot be launched is left out, and `log` is told;
// where the estimate's cannot, or an output is wrong, `why_not` names problem and choice.
TunedCase tune_case(Platform& platform, const Case& test_case, const std::function<void(const std::string&)>& log);

}  // namespace noisefloor
