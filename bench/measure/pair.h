// Two implementations of a problem in turns, so that clock, heat and neighbours fall on both alike.
//
// Each is timed alone before; a paired comparison gives the ratio of their times, with an interval, from blocks of
// launches in the order A B B A, B A A B, ... Every block begins on poisoned outputs and is judged; behind the last a
// plugin's launch is replayed again, as before the first: it may have begun since to leave its work to others.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/measure/platform_timing.h"
#include "bench/measure/verify.h"
#include "reports/run/pair_ratio.h"

namespace noisefloor {

class Contender {
 public:
  virtual ~Contender() = default;
  // As TimingSource: `samples` times of one launch each with nothing in cache, and of launches as a pipeline runs them.
  virtual std::vector<double> cold(int samples) = 0;
  virtual std::vector<double> warm(int samples, int repeats) = 0;
  virtual void move_to(std::size_t /*slot*/) {}  // its tensors, where it has several slots, before a round
  virtual void poison() = 0;                     // the outputs, before a block
  virtual Verdict judge() = 0;                   // what the block's launches left
  // Behind the last block; of a plugin, as Verifier's verify_replay().
  virtual Verdict replay() { return {.reason = ""}; }
};

// Of this process. What it is given must outlive it. A plugin is judged as in a row: its inputs change from block to
// block, so that nobody else may launch on its fixture, and L2 must be everybody's. On a host, samples whose threads
// waited for a core are taken again for a few seconds; then it throws Throttled.
class BoundContender final : public Contender {
 public:
  BoundContender(BoundCase& bound, Verifier& verifier);
  std::vector<double> cold(int samples) override;
  std::vector<double> warm(int samples, int repeats) override;
  void move_to(std::size_t slot) override { timing_.move_to(slot % timing_.slots()); }
  void poison() override;
  Verdict judge() override;
  Verdict replay() override;

 private:
  std::vector<double> undisturbed(int samples, const std::function<std::vector<double>(int)>& take);

  Platform* platform_;
  BoundCase* bound_;
  Verifier* verifier_;
  PlatformTiming timing_;
};

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
