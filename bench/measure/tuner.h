// How the harness chooses among the algorithms of a library: by its own times and its own verifier. The search has the
// steps of tune_choices (entrants.h), and differs in who asks: a library does, in the middle of a sweep, and takes the
// next one where the fastest is inaccurate.
#pragma once

#include "bench/measure/verify.h"

namespace noisefloor {

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
