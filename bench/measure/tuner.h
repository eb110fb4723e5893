// How the harness chooses among the algorithms of a library: by its own times and its own verifier.
#pragma once

#include "bench/measure/verify.h"

namespace noisefloor {

// Every algorithm is sampled three times and the eight fastest fifteen times. No further algorithms are begun once
// `budget_seconds` are spent.
class HarnessRanker final : public Ranker {
 public:
  explicit HarnessRanker(Verifier& verifier, double budget_seconds = 4.0)
      : verifier_(&verifier), budget_seconds_(budget_seconds) {}
  Ranking rank(Caches caches, int count, const std::function<Status(int)>& launch) override;
  bool accurate(const std::function<Status()>& launch) override;

 private:
  std::optional<double> median_us(Caches caches, const Launch& launch, int samples);

  Verifier* verifier_;
  double budget_seconds_;
};

// Lets a library choose its algorithm on the verifier's fixture and its prepared weights, whose outputs are
// overwritten. Throws as Ready::tune does.
void tune_ready(Ready& ready, Verifier& verifier, const Scratch& scratch);

}  // namespace noisefloor
