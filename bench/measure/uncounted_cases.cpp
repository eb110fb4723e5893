#include "bench/measure/uncounted_cases.h"

#include <utility>

#include "bench/measure/failure.h"

namespace noisefloor {

void UncountedCases::finish(const SweepRow& row) {
  for (Waiting& one : waiting_)
    if (one.test_case.id() == row.case_id()) one.row = row;
}

namespace {

bool answers(Platform& platform) {
  try {
    platform.synchronize();
    return true;
  } catch (const DeviceError&) {
    return false;
  }
}

}  // namespace

UncountedCases::Counted UncountedCases::count(Fixture& fixture, const CountOne& count_one) {
  Counted counted;
  const std::vector<Waiting> waiting = std::exchange(waiting_, {});
  for (const Waiting& one : waiting) {
    CaseResult result{one.row};
    try {
      fixture.move_to(0);
      one.bound->use_inputs(0);
      count_one(one.test_case, *one.bound, result.row);
      fixture.platform().synchronize();  // what it left behind would be the next one's
    } catch (const std::exception&) {
      const Failure failure = current_failure();
      result.row.status = failure.outcome;
      result.row.reason = failure.reason;
      clear_times(result);
      counted.lost = failure.lost || !answers(fixture.platform());
    }
    counted.rows.push_back(result.row);
    if (counted.lost) break;
  }
  return counted;
}

}  // namespace noisefloor
