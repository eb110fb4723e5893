// The model's constants, and a random search for those whose choices take the least time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "tools/fit/fit.h"

namespace noisefloor::fit {
namespace {

using product::Sm90aCosts;

constexpr Constant kConstants[] = {
    {"fma_per_cycle", &Sm90aCosts::fma_per_cycle, 1000, 2048},  // four tensor cores have no more
    {"bytes_per_cycle", &Sm90aCosts::bytes_per_cycle, 16, 128},
    {"load_latency", &Sm90aCosts::load_latency, 300, 10000},
    {"least_step", &Sm90aCosts::least_step, 50, 1000},
    {"byte", &Sm90aCosts::byte, 0.00005, 0.01},
    {"fill", &Sm90aCosts::fill, 100, 10000},
    {"store", &Sm90aCosts::store, 0.002, 0.5},
    {"exchange", &Sm90aCosts::exchange, 0.02, 2},
    {"meet", &Sm90aCosts::meet, 50, 5000},
    {"meet_per_block", &Sm90aCosts::meet_per_block, 1, 500},
    {"multicast", &Sm90aCosts::multicast, 20, 2000},
    {"turn", &Sm90aCosts::turn, 20, 10000},
};
static_assert(sizeof(Sm90aCosts) == std::size(kConstants) * sizeof(double), "a new constant needs its range");

// To three significant digits: what a fit tries.
double rounded(double value) {
  const int digit = static_cast<int>(std::floor(std::log10(value))) - 2;  // the last that stays
  const double unit = std::pow(10, std::abs(digit));                      // a whole number, so exact
  return digit > 0 ? std::round(value / unit) * unit : std::round(value * unit) / unit;
}

// What the model's choice costs: that of least modelled time, the earlier of equals, as product::choose() takes it.
double cost_of_choice(const product::Sm90aKernel& kernel, const TimedProblem& problem, int sm_count) {
  const TimedSchedule* chosen = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const TimedSchedule& timed : problem.schedules) {
    const double cycles = product::modelled_cycles(kernel, timed.product, timed.schedule, sm_count);
    if (cycles < least) least = cycles, chosen = &timed;
  }
  return chosen->cost;
}

// Sum of logarithms, none below 0; `enough` or a little more where the sum is above it.
double log_sum(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen, double enough) {
  double sum = 0;
  for (const TimedProblem& problem : timings.problems) {
    if (problem.unseen != unseen) continue;
    sum += std::log(cost_of_choice(kernel, problem, timings.sm_count));
    if (sum > enough) break;
  }
  return sum;
}

double distance(const Sm90aCosts& a, const Sm90aCosts& b) {
  double sum = 0;
  for (const Constant& constant : constants())
    if (a.*constant.place != 0) sum += std::pow(std::log(a.*constant.place / b.*constant.place), 2);
  return sum;
}

// From the generator's bits: distributions of the standard library differ between libraries.
class Random {
 public:
  explicit Random(std::uint64_t seed) : bits_(seed) {}
  double between(double least, double most) {
    return least + (most - least) * static_cast<double>(bits_() >> 11) * 0x1p-53;
  }

 private:
  std::mt19937_64 bits_;
};

// Small steps and large ones, of few constants: from a hundredth up to a factor of e.
Sm90aCosts changed(Sm90aCosts costs, Random& random) {
  constexpr double kChanged = 0.2;  // of the constants
  const double size = std::exp(random.between(std::log(0.01), 0));
  const auto sure = static_cast<std::size_t>(random.between(0, static_cast<double>(constants().size())));
  for (std::size_t i = 0; i < constants().size(); ++i) {
    const Constant& constant = constants()[i];
    double& value = costs.*constant.place;
    if (value == 0 || (i != sure && random.between(0, 1) > kChanged)) continue;
    value = std::clamp(rounded(value * std::exp(random.between(-size, size))), constant.least, constant.most);
  }
  return costs;
}

}  // namespace

std::span<const Constant> constants() {
  return kConstants;
}

std::string source_text(const Sm90aCosts& costs) {
  constexpr std::string_view kBegin = ".costs = {";
  std::string text;
  for (const Constant& constant : kConstants)
    if (costs.*constant.place != 0)
      text += fmt::format("{}.{} = {}", text.empty() ? kBegin : ",\n" + std::string(kBegin.size(), ' '), constant.name,
                          costs.*constant.place);
  return text + "},\n";
}

double loss(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen) {
  const auto count = std::ranges::count(timings.problems, unseen, &TimedProblem::unseen);
  const double sum = log_sum(kernel, timings, unseen, std::numeric_limits<double>::infinity());
  return std::exp(sum / static_cast<double>(count));
}

Sm90aCosts search(const FittedKernel& kernel, const Timings& timings, std::uint64_t seed, int rounds) {
  Random random(seed);
  const product::Sm90aKernel present = kernel.present();
  product::Sm90aKernel best = present;
  double least = log_sum(best, timings, false, std::numeric_limits<double>::infinity());
  for (int round = 0; round < rounds; ++round) {
    product::Sm90aKernel tried = best;
    tried.costs = changed(best.costs, random);
    if (kernel.turn_is_fill) tried.costs.turn = tried.costs.fill;
    const double sum = log_sum(tried, timings, false, least);
    if (sum > least) continue;
    if (sum == least && distance(tried.costs, present.costs) >= distance(best.costs, present.costs)) continue;
    least = sum;
    best = tried;
  }
  return best.costs;
}

}  // namespace noisefloor::fit
