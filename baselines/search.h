// The search of what a library offers for the fastest algorithms that are accurate: one for cold caches, one for warm
// ones.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

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

// A problem that a library can run in several forms (all in one graph; in two launches): the fastest of them is the
// baseline, one for cold caches, one for warm ones.
struct Form {
  std::string name;  // in the words of a choice: no '/'
  // As Baseline::create.
  std::function<std::unique_ptr<BaselineRun>(const Algorithms& earlier)> create;
};

// All forms take the same prepared weights, and while they are tuned the workspace of the largest. One that loses the
// device then has the whole baseline refused (search_cache.h), as any algorithm that does.
class FormsRun final : public BaselineRun {
 public:
  // Forms that the library refuses are left out. Throws LibraryRefused: what it says of the first, where it refuses
  // all; where `earlier` is no choice of these forms, or cannot be repeated.
  FormsRun(const std::vector<Form>& forms, const Algorithms& earlier);

  std::size_t workspace_bytes() const override;
  std::size_t prepared_bytes() const override { return any().prepared_bytes(); }
  Status prepare(std::span<void* const> pointers, void* prepared, const LaunchContext& context) override {
    return any().prepare(pointers, prepared, context);
  }
  Status tune(std::span<void* const>, const Scratch&, const LaunchContext&, Ranker&) override;
  Status launch(std::span<void* const>, const Scratch&, const LaunchContext&, Caches) override;
  std::string description() const override;
  Algorithms algorithms() const override;

 private:
  struct Run {
    std::string name;
    std::unique_ptr<BaselineRun> run;  // null after a tune that chose another
  };
  int index_of(const std::string& name) const;
  BaselineRun& any() const { return *runs_[static_cast<std::size_t>(std::max(chosen_.cold, 0))].run; }

  std::size_t forms_;             // that were offered
  std::vector<Run> runs_;         // after a tune those that some algorithm is accurate of
  ColdWarm<int> chosen_{-1, -1};  // of runs_; -1 before tune
};

}  // namespace noisefloor
