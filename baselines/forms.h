// A problem that a library can run in several forms (all in one graph; in two launches): the fastest of them is the
// baseline, one for cold caches, one for warm ones.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baselines/search.h"

namespace noisefloor {

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
    bool right = true;                 // some algorithm of it is accurate
  };
  int index_of(const std::string& name) const;
  BaselineRun& any() const { return *runs_[static_cast<std::size_t>(std::max(chosen_.cold, 0))].run; }

  std::size_t forms_;  // that were offered
  std::vector<Run> runs_;
  ColdWarm<int> chosen_{-1, -1};  // of runs_; -1 before tune
};

}  // namespace noisefloor
