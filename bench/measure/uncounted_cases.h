// The cases of one problem that wait for their hardware counters, so that the profiler is enabled once for all.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_result.h"

namespace noisefloor {

class UncountedCases {
 public:
  void add(const Case& test_case, std::shared_ptr<BoundCase> bound) {
    waiting_.push_back({test_case, {}, std::move(bound)});
  }
  void finish(const SweepRow& row);  // as it is without counters; of one that does not wait: nothing
  bool empty() const { return waiting_.empty(); }
  void clear() { waiting_.clear(); }  // before their fixture goes

  // Their rows with what `count_one` puts there, or throws; without those behind one that cost the device. None waits
  // then.
  struct Counted {
    std::vector<SweepRow> rows;
    bool lost = false;
  };
  using CountOne = std::function<void(const Case&, BoundCase&, SweepRow&)>;
  Counted count(Fixture& fixture, const CountOne& count_one);

 private:
  struct Waiting {
    Case test_case;
    SweepRow row;
    std::shared_ptr<BoundCase> bound;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace noisefloor
