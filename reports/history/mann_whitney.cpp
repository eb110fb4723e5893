#include "reports/history/mann_whitney.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace noisefloor {
namespace {

struct Ranks {
  std::vector<std::int64_t> doubled;  // of all samples, sorted: twice the rank, so that shared ranks are whole
  std::int64_t doubled_sum_a = 0;
  double tied = 0;  // sum of t^3 - t over the groups of t equal samples
};

Ranks rank(std::span<const double> a, std::span<const double> b) {
  std::vector<std::pair<double, bool>> all;  // value, whether of a
  all.reserve(a.size() + b.size());
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::sort(all.begin(), all.end());
  Ranks ranks;
  ranks.doubled.resize(all.size());
  for (std::size_t begin = 0; begin < all.size();) {
    std::size_t end = begin;
    std::int64_t of_a = 0;
    while (end < all.size() && all[end].first == all[begin].first) of_a += all[end++].second ? 1 : 0;
    // Ranks begin + 1 to end: twice their mean is begin + 1 + end.
    const auto doubled = static_cast<std::int64_t>(begin + 1 + end);
    std::fill(ranks.doubled.begin() + static_cast<std::ptrdiff_t>(begin),
              ranks.doubled.begin() + static_cast<std::ptrdiff_t>(end), doubled);
    ranks.doubled_sum_a += of_a * doubled;
    const auto t = static_cast<double>(end - begin);
    ranks.tied += t * t * t - t;
    begin = end;
  }
  return ranks;
}

// ways[k][s]: how many choices of k ranks have the doubled sum s. C(20, 10) and all sums of it are exact in a double.
double exact_p(const Ranks& ranks, std::size_t size_a) {
  const auto most =
      static_cast<std::size_t>(std::accumulate(ranks.doubled.begin(), ranks.doubled.end(), std::int64_t{0}));
  std::vector<std::vector<double>> ways(size_a + 1, std::vector<double>(most + 1, 0));
  ways[0][0] = 1;
  for (const std::int64_t doubled : ranks.doubled) {
    const auto step = static_cast<std::size_t>(doubled);
    for (std::size_t k = size_a; k > 0; --k)
      for (std::size_t sum = most; sum >= step; --sum) ways[k][sum] += ways[k - 1][sum - step];
  }
  const auto n = static_cast<double>(ranks.doubled.size());
  const double mean = static_cast<double>(size_a) * (n + 1);  // doubled
  const double distance = std::abs(static_cast<double>(ranks.doubled_sum_a) - mean);
  double as_far = 0, all = 0;
  for (std::size_t sum = 0; sum <= most; ++sum) {
    all += ways[size_a][sum];
    if (std::abs(static_cast<double>(sum) - mean) >= distance) as_far += ways[size_a][sum];
  }
  return as_far / all;
}

double normal_p(const Ranks& ranks, double size_a, double size_b) {
  const double n = size_a + size_b;
  const double variance = size_a * size_b / 12 * (n + 1 - ranks.tied / (n * (n - 1)));
  if (!(variance > 0)) return 1;
  const double distance = std::abs(static_cast<double>(ranks.doubled_sum_a) - size_a * (n + 1)) / 2;
  return std::erfc(std::max(distance - 0.5, 0.0) / std::sqrt(2 * variance));
}

}  // namespace

double mann_whitney_p(std::span<const double> a, std::span<const double> b) {
  if (a.empty() || b.empty()) return 1;
  constexpr std::size_t kExact = 20;
  const Ranks ranks = rank(a, b);
  if (ranks.doubled.size() <= kExact) return exact_p(ranks, a.size());
  return normal_p(ranks, static_cast<double>(a.size()), static_cast<double>(b.size()));
}

std::vector<double> holm_adjusted(std::span<const double> p) {
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t i, std::size_t j) { return p[i] < p[j]; });
  std::vector<double> adjusted(p.size());
  double running = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    running = std::max(running, std::min(1.0, static_cast<double>(p.size() - i) * p[order[i]]));
    adjusted[order[i]] = running;
  }
  return adjusted;
}

}  // namespace noisefloor
