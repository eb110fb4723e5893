#include "bench/measure/pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bench/measure/case_result.h"
#include "bench/measure/timing_loop.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

// One side's blocks of a round: medians, cold and warm.
struct Block {
  double cold = 0, warm = 0;
};

template <class Take>
std::vector<double> undisturbed(TimingSource& source, int samples, const Take& take) {
  constexpr double kRetrySeconds = 5;
  const double begin = steady_seconds();
  std::vector<double> kept;
  while (static_cast<int>(kept.size()) < samples) {
    if (steady_seconds() - begin > kRetrySeconds)
      throw Throttled(fmt::format("threads waited for a core, also after {:.0f} s of repeating", kRetrySeconds));
    const std::vector<double> times = take(samples - static_cast<int>(kept.size()));
    const std::span<const double> waits = source.waits_us();
    for (std::size_t i = 0; i < times.size(); ++i)
      if (waits.empty() || !waited(times[i], waits[i])) kept.push_back(times[i]);
  }
  return kept;
}

class PairedRun {
 public:
  PairedRun(Contender& ours, Contender& theirs, const PairOptions& options)
      : sides_{&ours, &theirs}, options_(options) {}

  PairResult run() {
    for (Contender* side : sides_)  // both alike: what starting a graph costs falls on as many launches
      repeats_ = std::max(repeats_, probe_warm_launches([&](int samples, int some) {
                                      return undisturbed_warm(*side, samples, some);
                                    }).repeats);
    std::vector<double> cold, warm;
    PairResult times;
    for (int round = 0; round < options_.most_rounds; ++round) {
      // A B B A, then B A A B: a drift within a round falls on both alike.
      const std::size_t first = round % 2 == 0 ? 0 : 1, second = 1 - first;
      std::array<Block, 2> sums{};
      for (Contender* side : sides_) side->move_to(static_cast<std::size_t>(round) % side->slots());
      for (const std::size_t side : {first, second, second, first}) {
        const Block one = block(side);
        if (!wrong_.empty()) return {{}, {}, round, wrong_, ours_wrong_};
        sums[side].cold += one.cold;
        sums[side].warm += one.warm;
      }
      cold.push_back(sums[1].cold / sums[0].cold);
      warm.push_back(sums[1].warm / sums[0].warm);
      times.rounds = round + 1;
      if (times.rounds < options_.fewest_rounds) continue;
      if (known(ratio_of_rounds(cold, 0)) && known(ratio_of_rounds(warm, 0))) break;
    }
    times.cold = ratio_of_rounds(cold, pair_noise().cold);
    times.warm = ratio_of_rounds(warm, pair_noise().warm);
    for (const std::size_t side : {0u, 1u})
      if (wrong_.empty()) take(side, "the last block", sides_[side]->replay());
    if (!wrong_.empty()) return {{}, {}, times.rounds, wrong_, ours_wrong_};
    return times;
  }

 private:
  bool known(const Ratio& ratio) const { return (ratio.high - ratio.low) / 2 <= options_.known_to * ratio.value; }

  Block block(std::size_t side) {
    Contender& one = *sides_[side];
    one.poison(0);
    Block times;
    times.cold = median(undisturbed_cold(one, options_.cold_samples));
    judge(side, "a cold block");
    one.poison(0);
    std::vector<double> warm = undisturbed_warm(one, options_.warm_samples + 1, repeats_);
    warm.erase(warm.begin());  // it finds the other's lines in L2
    times.warm = median(warm);
    judge(side, "a warm block");
    return times;
  }

  void judge(std::size_t side, const char* block) {
    if (wrong_.empty()) take(side, block, sides_[side]->judge());
  }

  void take(std::size_t side, const char* block, const Verdict& verdict) {
    if (verdict.correct()) return;
    ours_wrong_ = side == 0;
    wrong_ = fmt::format("{} after {}: {}", side == 0 ? "ours" : "theirs", block, verdict.reason);
  }

  std::array<Contender*, 2> sides_;
  int repeats_ = 1;
  PairOptions options_;
  std::string wrong_;
  bool ours_wrong_ = false;
};

}  // namespace

std::vector<double> undisturbed_cold(TimingSource& source, int samples) {
  return undisturbed(source, samples, [&](int some) { return source.cold(some); });
}

std::vector<double> undisturbed_warm(TimingSource& source, int samples, int repeats) {
  return undisturbed(source, samples,
                     [&](int some) { return source.warm(some, repeats, TimingSource::Edges::pipeline); });
}

PairNoise pair_noise() {
  return {0.006, 0.013};
}

PairResult paired_run(Contender& ours, Contender& theirs, const PairOptions& options) {
  return PairedRun(ours, theirs, options).run();
}

}  // namespace noisefloor
