// How the harness chooses among the algorithms of a library: by its own times and its own verifier. The search has the
// steps of tune_choices (entrants.h), and differs in who asks: a library does, in the middle of a sweep that has a
// budget, and takes the next one where the fastest is inaccurate.
#pragma once

#include <chrono>

#include "bench/measure/verify.h"

namespace noisefloor {

using Deadline = std::chrono::steady_clock::time_point;

// The time for a search was over before it had found anything.
class BudgetSpent : public std::runtime_error {
 public:
  BudgetSpent() : std::runtime_error("the budget was spent before the search had ended") {}
};

// Every algorithm is sampled three times and the eight fastest fifteen times more. No further algorithms are begun once
// `budget_seconds` are spent; once `until` is past, each question throws BudgetSpent.
class HarnessRanker final : public Ranker {
 public:
  static constexpr double kBudgetSeconds = 4;
  explicit HarnessRanker(Verifier& verifier, double budget_seconds = kBudgetSeconds, Deadline until = Deadline::max())
      : verifier_(&verifier), budget_seconds_(budget_seconds), until_(until) {}
  Ranking rank(Caches caches, int count, const std::function<Status(int)>& launch) override;
  bool accurate(const std::function<Status()>& launch) override;

 private:
  void require_time() const;
  std::optional<std::vector<double>> times(Caches caches, const Launch& launch, int samples);

  Verifier* verifier_;
  double budget_seconds_;
  Deadline until_;
};

// Lets a library choose its algorithm on the verifier's fixture and its prepared weights, whose outputs are
// overwritten. Throws as Ready::tune does, and BudgetSpent.
void tune_ready(Ready& ready, Verifier& verifier, const Scratch& scratch, Deadline until);

}  // namespace noisefloor
