// How the harness searches for the fastest of many: few times of all, more of those near the best. And how it chooses
// so among the algorithms of a library, by its own times and its own verifier. That search has the steps of
// tune_choices (choices.h), and differs in who asks: a library does, in the middle of a sweep, and takes the next one
// where the fastest is inaccurate.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "bench/measure/verify.h"

namespace noisefloor {

// One way to launch what is searched.
struct Candidate {
  std::size_t index;
  std::vector<double> us;  // its samples so far
  bool stays = false;      // in every cut: the others are compared with it
  double median_us() const;
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

}  // namespace noisefloor
