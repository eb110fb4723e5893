// Two implementations of a problem in turns, so that clock, heat and neighbours fall on both alike.
//
// Each is timed alone before; a paired comparison gives the ratio of their times, with an interval, from blocks of
// launches in the order A B B A, B A A B, ... Every block begins on poisoned outputs and is judged; behind the last a
// plugin's launch is replayed again, as before the first: it may have begun since to leave its work to others.
#pragma once

#include <string>
#include <vector>

#include "bench/measure/contender.h"
#include "reports/run/pair_ratio.h"

namespace noisefloor {

// Times as TimingSource's. On a host, those whose threads waited for a core are taken again for a few seconds; then it
// throws Throttled.
std::vector<double> undisturbed_cold(TimingSource& source, int samples);
std::vector<double> undisturbed_warm(TimingSource& source, int samples, int repeats);

// What the same paired comparison in other processes differs by (set while its tensors had one slot: rounds show a part
// of it since), beyond what its rounds show, as a standard deviation. Set so that 96 and 94 % of the intervals of 55
// paired comparisons in five processes on an H200 held the other four's ratio, cold and warm; of paired comparisons on
// another machine, which they were not set from, 94 and 95 % do (docs/experiments/measuring, duels-in-five-processes).
struct PairNoise {
  double cold = 0, warm = 0;
};
PairNoise pair_noise();

struct PairOptions {
  int fewest_rounds = 12, most_rounds = 24;
  double known_to = 0.005;  // half of the rounds' interval of either ratio, relative, at which no more are run
  int cold_samples = 4, warm_samples = 3;
};

struct PairResult {
  Ratio cold, warm;  // theirs over ours: above 1 ours is faster
  int rounds = 0;
  std::string wrong;        // why there are none: whose result was wrong after which block
  bool ours_wrong = false;  // it was ours
};

PairResult paired_run(Contender& ours, Contender& theirs, const PairOptions& options = {});

}  // namespace noisefloor
