#include "reports/history/change_points.h"

#include <algorithm>
#include <cmath>

#include "reports/history/mann_whitney.h"
#include "reports/run/statistics.h"

namespace noisefloor {
namespace {

constexpr std::size_t kSamplesARun = 50;
constexpr std::size_t kSamplesInAll =
    1000;  // of 1,000 fully separated samples p is still far above a double's smallest
constexpr std::size_t kSamplesAtLeast = 5;

using Series = std::span<const RunValue>;

double level(Series runs) {
  std::vector<double> values;
  for (const RunValue& run : runs) values.push_back(run.value);
  return median(std::move(values));
}

bool differs(double before, double after, const ChangeRule& rule) {
  return std::abs(after - before) > std::max(rule.relative * before, rule.microseconds);
}

// All runs' samples side by side, as many of each: runs with more do not outvote the others.
struct Pool {
  std::vector<double> samples;
  std::size_t a_run = 0;
  std::span<const double> of(std::size_t begin, std::size_t end) const {
    return std::span(samples).subspan(begin * a_run, (end - begin) * a_run);
  }
};

Pool pool(Series runs) {
  Pool made;
  made.a_run = std::clamp(kSamplesInAll / std::max<std::size_t>(runs.size(), 1), kSamplesAtLeast, kSamplesARun);
  for (const RunValue& run : runs) made.a_run = std::min(made.a_run, std::max<std::size_t>(run.samples.size(), 1));
  for (const RunValue& run : runs)
    for (std::size_t i = 0; i < made.a_run; ++i)
      made.samples.push_back(run.samples.empty() ? run.value : run.samples[i * run.samples.size() / made.a_run]);
  return made;
}

// Cuts at the smallest p of [begin, end), and both sides likewise, as long as it is significant.
void segment(Series runs, const Pool& all, std::size_t begin, std::size_t end, const ChangeRule& rule,
             std::vector<std::size_t>& cuts) {
  if (end - begin < 2) return;
  std::vector<double> p;
  for (std::size_t at = begin + 1; at < end; ++at) p.push_back(mann_whitney_p(all.of(begin, at), all.of(at, end)));
  const double smallest = *std::min_element(p.begin(), p.end());
  std::size_t best = 0;
  double widest = -1;  // among equal p, the largest difference decides
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (p[i] > smallest) continue;
    const std::size_t at = begin + 1 + i;
    const double width = std::abs(level(runs.subspan(at, end - at)) - level(runs.subspan(begin, at - begin)));
    if (width > widest) {
      widest = width;
      best = at;
    }
  }
  const double corrected = holm_adjusted(p)[best - begin - 1] * static_cast<double>(rule.series_compared);
  if (!(corrected < rule.significance)) return;
  cuts.push_back(best);
  segment(runs, all, begin, best, rule, cuts);
  segment(runs, all, best, end, rule, cuts);
}

// The levels on both sides of each cut, and p of their samples, times the cuts that were possible and the series.
std::vector<ChangePoint> points_at(Series runs, const Pool& all, const std::vector<std::size_t>& cuts,
                                   const ChangeRule& rule) {
  std::vector<ChangePoint> points;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const std::size_t begin = i == 0 ? 0 : cuts[i - 1], at = cuts[i];
    const std::size_t end = i + 1 == cuts.size() ? runs.size() : cuts[i + 1];
    const double p = mann_whitney_p(all.of(begin, at), all.of(at, end)) * static_cast<double>(runs.size() - 1) *
                     static_cast<double>(rule.series_compared);
    points.push_back({at, level(runs.subspan(begin, at - begin)), level(runs.subspan(at, end - at)), std::min(p, 1.0)});
  }
  return points;
}

}  // namespace

std::vector<ChangePoint> change_points(Series runs, const ChangeRule& rule) {
  const Pool all = pool(runs);
  std::vector<std::size_t> cuts;
  segment(runs, all, 0, runs.size(), rule, cuts);
  std::sort(cuts.begin(), cuts.end());
  // Without a cut the levels beside it change, so that they go one by one, the smallest first.
  for (;;) {
    const auto points = points_at(runs, all, cuts, rule);
    std::size_t weakest = points.size();
    for (std::size_t i = 0; i < points.size(); ++i) {
      const ChangePoint& point = points[i];
      if (differs(point.before, point.after, rule) && point.p < rule.significance) continue;
      const auto size = [](const ChangePoint& of) { return std::abs(of.after - of.before); };
      if (weakest == points.size() || size(point) < size(points[weakest])) weakest = i;
    }
    if (weakest == points.size()) return points;
    cuts.erase(cuts.begin() + static_cast<std::ptrdiff_t>(weakest));
  }
}

}  // namespace noisefloor
