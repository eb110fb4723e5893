#include "reports/run/pool_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "reports/run/pool_rows.h"
#include "reports/run/samples_line.h"

namespace noisefloor {
namespace {

PooledRow read_pooled(const MergePart& part, const SweepRow& row) {
  const auto line = part.samples.find(row);
  return {row, line == part.samples.end() ? RowSamples{} : parse_samples_line(line->second).samples};
}

// Whether `a` has the samples of `b`, as a copy of it or a pool with it among its members: in every row.
bool has_samples_of(const MergePart& a, const MergePart& b) {
  constexpr std::ptrdiff_t kEnough = 40;  // to know a row's samples again; pooling may leave out the last ones
  const auto cold_us = [](const std::string& line) { return parse_samples_line(line).samples.cold_us; };
  for (const auto& [id, line] : b.samples) {
    const auto found = a.samples.find(id);
    if (found == a.samples.end()) return false;
    const auto all = cold_us(found->second), own = cold_us(line);
    const auto end = own.begin() + std::min(kEnough, std::ssize(own));
    if (std::search(all.begin(), all.end(), own.begin(), end) == all.end()) return false;
  }
  return !b.samples.empty();
}

void require_samples_once(const std::vector<MergePart>& parts) {
  for (const MergePart& a : parts)
    for (const MergePart& b : parts)
      if (&a != &b && has_samples_of(a, b))
        cannot_merge(a.folder, fmt::format("has the samples of {} already", b.folder.string()));
}

}  // namespace

void require_whole_sweeps(const std::vector<MergePart>& parts) {
  for (const MergePart& part : parts)
    if (part.shard) cannot_merge(part.folder, "is a part of a split sweep: merge its parts first");
}

std::vector<PooledLine> pool_parts(const std::vector<MergePart>& parts) {
  require_samples_once(parts);
  std::vector<std::map<CaseId, const SweepRow*>> rows;
  for (const MergePart& part : parts) {
    auto& own = rows.emplace_back();
    for (const SweepRow& row : part.rows) own[row] = &row;
  }
  for (std::size_t i = 1; i < parts.size(); ++i)
    for (const SweepRow& row : parts[i].rows)
      if (!rows.front().contains(row))
        cannot_merge(parts.front().folder,
                     fmt::format("has no {}, which {} has", row.name(), parts[i].folder.string()));
  std::vector<PooledLine> lines;
  for (const SweepRow& row : parts.front().rows) {
    std::vector<PooledRow> runs;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto found = rows[i].find(row);
      if (found == rows[i].end())
        cannot_merge(parts[i].folder,
                     fmt::format("has no {}, which {} has", row.name(), parts.front().folder.string()));
      runs.push_back(read_pooled(parts[i], *found->second));
    }
    PooledRow pooled = pool_rows(runs);
    const bool timed = !pooled.samples.cold_us.empty();
    PooledLine& line = lines.emplace_back(PooledLine{std::move(pooled.row), ""});
    if (timed) line.samples = samples_line(line.row, pooled.samples);
  }
  return lines;
}

std::size_t duels_left_out(const std::vector<MergePart>& parts, const std::vector<PooledLine>& pooled) {
  std::set<CaseId> fought;
  for (const MergePart& part : parts)
    for (const SweepRow& row : part.rows)
      if (!row.rival.empty()) fought.insert(row);
  return static_cast<std::size_t>(std::ranges::count_if(pooled, [&](const PooledLine& line) {
    return line.row.status == Outcome::ok && line.row.rival.empty() && fought.contains(line.row);
  }));
}

}  // namespace noisefloor
