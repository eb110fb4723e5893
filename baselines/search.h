// The search of what a library offers for the fastest algorithms that are accurate: one for cold caches, one for warm
// ones.
#pragma once

#include <functional>
#include <string>

#include "baselines/baseline.h"

namespace noisefloor {

// One for cold caches, one for warm ones.
template <class Value>
struct ColdWarm {
  Value cold, warm;
  Value& of(Caches caches) { return caches == Caches::cold ? cold : warm; }
  const Value& of(Caches caches) const { return caches == Caches::cold ? cold : warm; }
};

struct Found {
  Status status;  // not ok: no algorithm ran, none is accurate, or the device failed
  ColdWarm<int> algorithm{-1, -1};
  std::string tally;  // "best of 38; 12 of 50 not timed for want of time"
};

// Of `count` algorithms. `timed(i)` enqueues algorithm i; `judged(i)` all that it takes to make the outputs with it,
// and may be empty where they are judged with what runs before or behind it.
Found search(Ranker& ranker, int count, const std::function<Status(int)>& timed,
             const std::function<Status(int)>& judged);

// "A", or "A cold, B warm" of two that differ.
std::string names_of(const ColdWarm<std::string>& names);

}  // namespace noisefloor
