#include "bench/fit/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "bench/fit/constants.h"

namespace noisefloor::fit {
namespace {

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

double distance(const product::Sm90aCosts& a, const product::Sm90aCosts& b) {
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
product::Sm90aCosts changed(product::Sm90aCosts costs, Random& random) {
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

double loss(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen) {
  const auto count = std::ranges::count(timings.problems, unseen, &TimedProblem::unseen);
  const double sum = log_sum(kernel, timings, unseen, std::numeric_limits<double>::infinity());
  return std::exp(sum / static_cast<double>(count));
}

product::Sm90aCosts search(const product::Sm90aKernel& kernel, bool turn_is_fill, const Timings& timings,
                           std::uint64_t seed, int rounds) {
  Random random(seed);
  product::Sm90aKernel best = kernel;
  double least = log_sum(best, timings, false, std::numeric_limits<double>::infinity());
  for (int round = 0; round < rounds; ++round) {
    product::Sm90aKernel tried = best;
    tried.costs = changed(best.costs, random);
    if (turn_is_fill) tried.costs.turn = tried.costs.fill;
    const double sum = log_sum(tried, timings, false, least);
    if (sum > least) continue;
    if (sum == least && distance(tried.costs, kernel.costs) >= distance(best.costs, kernel.costs)) continue;
    least = sum;
    best = tried;
  }
  return best.costs;
}

}  // namespace noisefloor::fit
