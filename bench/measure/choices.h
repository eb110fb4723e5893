// The tuner of variants: which of the choices that one offers (kernels/core/variant.h) is the fastest of a problem.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/platform/platform.h"

namespace noisefloor {

struct TimedChoice {
  Choice choice;
  std::vector<double> warm, cold;  // microseconds of a launch
  double warm_us() const;          // the medians
  double cold_us() const;
};

// The case's variant must offer choices, and run its problem on this platform. Every choice gets one warm time; those
// near the best then get more, in turns, so that a clock that drifts favours none; the last of them are verified and
// timed cold, in turns. Returns these, and the estimate's, best warm time first; none where the problem has no choices.
// A choice that cannot be launched is left out, and `log` is told. Throws std::runtime_error naming problem and choice
// where an output is wrong; what the estimate's launch throws; OutOfMemory, DeviceError.
std::vector<TimedChoice> tune_choices(Platform& platform, const Case& test_case,
                                      const std::function<void(const std::string&)>& log);

// What tuning a case gave, or why it gave nothing; `failed`: a choice was wrong, or a launch failed.
struct TunedCase {
  std::vector<TimedChoice> best;  // as of tune_choices
  std::string why_not;
  bool failed = false, lost = false;  // lost: the device takes no more work
};
TunedCase tune_case(Platform& platform, const Case& test_case, const std::function<void(const std::string&)>& log);

}  // namespace noisefloor
