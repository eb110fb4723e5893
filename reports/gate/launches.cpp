#include "reports/gate/gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace noisefloor {
namespace {

using Counts = std::map<std::string, std::pair<std::size_t, std::size_t>>;

const RowSamples* known_kernels(const RunFiles& run, const SweepRow* row) {
  if (row == nullptr) return nullptr;
  const auto found = run.samples.find(*row);
  return found == run.samples.end() || found->second.kernels.empty() ? nullptr : &found->second;
}

}  // namespace

std::size_t LaunchChanges::ours() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(changes, [](const LaunchChange& change) { return !change.of_library; }));
}

LaunchChanges launch_changes(const RunFiles& a, const RunFiles& b, std::span<const RowPair> pairs) {
  LaunchChanges result;
  std::map<std::tuple<bool, std::string, std::string, Counts>, std::vector<const SweepRow*>> alike;
  for (const RowPair& pair : pairs) {
    const RowSamples *before = known_kernels(a, pair.a), *after = known_kernels(b, pair.b);
    if (before == nullptr || after == nullptr) {
      result.known_to_one += pair.a != nullptr && pair.b != nullptr && before != after;
      if (before != nullptr && pair.b != nullptr && pair.b->status == Outcome::ok) result.lost.push_back(pair.b);
      continue;
    }
    ++result.compared;
    Counts counts;
    for (std::size_t i = 0; i < before->kernels.size(); ++i)
      counts[before->kernels[i]].first += before->kernel_counts[i];
    for (std::size_t i = 0; i < after->kernels.size(); ++i) counts[after->kernels[i]].second += after->kernel_counts[i];
    std::erase_if(counts, [](const auto& kernel) { return kernel.second.first == kernel.second.second; });
    if (!counts.empty())
      alike[{pair.b->kind == "baseline", pair.b->op, pair.b->variant, std::move(counts)}].push_back(pair.b);
  }
  for (auto& [of, rows] : alike) {
    LaunchChange& change = result.changes.emplace_back(LaunchChange{std::move(rows), {}, std::get<bool>(of)});
    for (const auto& [name, count] : std::get<Counts>(of)) change.kernels.push_back({name, count.first, count.second});
  }
  std::ranges::stable_sort(result.changes, [](const LaunchChange& x, const LaunchChange& y) {
    return std::tuple(x.of_library, y.rows.size()) < std::tuple(y.of_library, x.rows.size());
  });
  return result;
}

std::string what_changed(const LaunchChange::Kernel& kernel) {
  if (kernel.before == 0) return "appears";
  if (kernel.after == 0) return "vanishes";
  return fmt::format("{} -> {} launches", kernel.before, kernel.after);
}

}  // namespace noisefloor
