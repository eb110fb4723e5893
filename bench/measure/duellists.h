// The two sides of a duel, made ready: those of a problem's cases that ran best are kept bound, and need not be
// prepared and tuned again.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_result.h"
#include "bench/measure/duel.h"

namespace noisefloor {

// On the fixture of one problem: the fastest of ours and the fastest baseline.
class KeptCases {
 public:
  // Where its row is ok and it is the fastest of its side.
  void keep(const Implementation& implementation, const CaseResult& result, std::shared_ptr<BoundCase> bound);
  BoundCase* find(const std::string& variant) const;  // null: not kept
  void clear() { kept_ = {}; }                        // before their fixture goes

 private:
  struct Kept {
    std::string variant;
    double warm_us = 0;
    std::shared_ptr<BoundCase> bound;
  };
  std::array<Kept, 2> kept_;
};

struct DuelGround {
  Fixture& fixture;  // of the problem
  Verifier& verifier;
  const KeptCases& kept;
  KnownTimes& known;
  Worker* worker;  // of the cases that are in one; null: none, and why
  const std::string& why_no_worker;
  std::function<void()> before;  // the first block
};

// Of two cases of one problem. Throws what making one of them ready throws, and DeviceError.
DuelResult meet(const DuelGround& ground, const Case& ours, const Case& theirs);

}  // namespace noisefloor
