#include "reports/which/which.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "reports/run/csv.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

using Fields = std::map<std::string, std::string>;

// "m=64,act=silu"
Fields fields_of(const std::string& problem) {
  Fields fields;
  for (std::size_t begin = 0, end; begin < problem.size(); begin = end + 1) {
    end = std::min(problem.find(',', begin), problem.size());
    const std::size_t equals = std::min(problem.find('=', begin), end);
    fields[problem.substr(begin, equals - begin)] = problem.substr(std::min(equals + 1, end), end - equals - 1);
  }
  return fields;
}

// In doublings of numbers; another word, or a field that one of them lacks, is one.
double distance(Fields a, const Fields& b) {
  double sum = 0;
  for (const auto& [name, value] : b) {
    const std::string other = std::exchange(a[name], "");
    a.erase(name);
    const auto x = parse_number<double>(value), y = parse_number<double>(other);
    sum += x && y ? std::abs(std::log2((std::abs(*x) + 1) / (std::abs(*y) + 1))) : value == other ? 0 : 1;
  }
  return sum + static_cast<double>(a.size());
}

std::string beside_first(const RankedRow& one) {
  const auto& [value, low, high] = one.over_first;
  const bool equal = verdict_of(one.over_first) == PairVerdict::equal;
  if (one.paired) return fmt::format("{:.3f} ({:.3f} to {:.3f}){}, in turns", value, low, high, equal ? " equal" : "");
  return equal ? "equal" : fmt::format("{:.2f}", value);
}

void put_beside(const RankedRow& first, RankedRow& other) {
  const auto paired = paired_ratio(*first.row, *other.row);
  other.paired = paired.has_value();
  const double ratio = *other.row->time_warm_us / *first.row->time_warm_us;
  const bool overlap =
      first.warm && other.warm && other.warm->low <= first.warm->high && first.warm->low <= other.warm->high;
  const bool equal = overlap || std::max(ratio, 1 / ratio) <= 1 + kAlike;
  other.over_first = paired ? *paired : equal ? Ratio{ratio, 1, 1} : Ratio{ratio, ratio, ratio};
}

// Of what made the row: the library, or our commit.
std::string version_of(const RunFiles& run, const SweepRow& row) {
  if (!row.plugin.empty()) return row.plugin;
  const std::string library = run.environment.text(of_pytorch(row) ? "pytorch" : row.variant);
  return row.kind == "baseline" && !library.empty() ? library : row.commit;
}

// "flux1-1024 x57, ...": how often each of `networks` (none: any) has the row's problem.
std::string uses_of(const SweepRow& row, const std::vector<std::string>& networks) {
  std::string uses;
  for (const auto& [name, count] : parse_networks(row.networks))
    if (networks.empty() || std::ranges::count(networks, name) > 0)
      uses += fmt::format("{}{} x{}", uses.empty() ? "" : ", ", name, count);
  return uses;
}

// How many problems have which verdict on ours; the last: a side without a time.
using VerdictCounts = std::array<int, 5>;

// A problem, our fastest, that beside the fastest baseline, and the time of each.
Cells line_of(const RunFiles& run, const ProblemId& id, const std::string& uses,
              const std::vector<std::string>& baselines, VerdictCounts& counts) {
  std::vector<RankedRow> ranked = rank_rows(run, id);
  const auto first = [&](bool baseline) {
    return std::ranges::find_if(ranked, [&](const RankedRow& one) {
      return one.row->lossy.empty() && one.row->variant != kMixedPlan && (one.row->kind == "baseline") == baseline;
    });
  };
  const auto ours = first(false), best = first(true);
  Cells line{id.problem + (id.dtype == "bf16" ? "" : " " + id.dtype), uses, "-", "-", "-", "-"};
  if (ours != ranked.end()) line[2] = ours->row->variant, line[3] = cell_of(ours->row->time_warm_us, "{:.1f}");
  if (best != ranked.end()) line[5] = best->row->variant;
  std::size_t verdict = counts.size() - 1;
  if (ours != ranked.end() && best != ranked.end()) {
    put_beside(*ours, *best);
    const Ratio& ratio = best->over_first;
    verdict = static_cast<std::size_t>(verdict_of(ratio));
    line[4] = best->paired ? text_of(ratio) : fmt::format("{:.2f} {}", ratio.value, to_string(verdict_of(ratio)));
  }
  ++counts[verdict];
  for (const std::string& name : baselines) {
    const auto other = std::ranges::find(ranked, name, [](const RankedRow& one) { return one.row->variant; });
    const bool none = other == ranked.end();
    line.push_back(none ? "-" : cell_of(other->row->time_warm_us, other->row->lossy.empty() ? "{:.1f}" : "{:.1f}*"));
  }
  return line;
}

TextPart part_of(const RunFiles& run, const std::string& op, const std::vector<std::string>& networks,
                 VerdictCounts& counts) {
  TextPart part{op, {{"problem", "of, times a pass", "ours", "us", "speedup", "over"}}};
  std::vector<std::pair<ProblemId, std::string>> problems;  // and their uses, as the first row says
  std::vector<std::string> baselines;
  std::map<std::string, std::string> versions;  // of which baselines
  for (const SweepRow& row : run.rows) {
    const std::pair<ProblemId, std::string> problem{row.problem_id(), uses_of(row, networks)};
    if (row.op != op || problem.second.empty()) continue;
    if (std::ranges::count(problems, problem.first, &std::pair<ProblemId, std::string>::first) == 0)
      problems.push_back(problem);
    if (row.kind != "baseline" || row.status != Outcome::ok || std::ranges::count(baselines, row.variant) > 0) continue;
    baselines.push_back(row.variant);
    std::string& same = versions[version_of(run, row)];
    same += (same.empty() ? "" : ", ") + row.variant;
    if (!row.lossy.empty())
      part.lines.push_back(fmt::format("* {} is lossy, and not compared with: {}", row.variant, row.lossy));
  }
  for (const auto& [version, names] : versions) part.lines.push_back(fmt::format("{}: {}", names, version));
  part.table.front().insert(part.table.front().end(), baselines.begin(), baselines.end());
  for (const auto& [id, uses] : problems) part.table.push_back(line_of(run, id, uses, baselines, counts));
  return part;
}

}  // namespace

std::vector<RankedRow> rank_rows(const RunFiles& run, const ProblemId& id) {
  std::vector<RankedRow> ranked;
  for (const SweepRow& row : run.rows) {
    if (row.problem_id() != id || row.status != Outcome::ok || !row.time_warm_us) continue;
    const auto samples = run.samples.find(row);
    ranked.push_back({&row});
    if (samples != run.samples.end() && !samples->second.warm_us.empty())
      ranked.back().warm = median_interval(samples->second.warm_us);
  }
  std::ranges::stable_sort(ranked, {}, [](const RankedRow& one) { return *one.row->time_warm_us; });
  const auto exact = [](const RankedRow& one) { return one.row->lossy.empty(); };
  auto best = std::ranges::find_if(ranked, exact);
  if (best == ranked.end()) best = ranked.begin();
  const auto other = std::ranges::find_if(ranked, [&](const RankedRow& one) {
    const auto ratio = paired_ratio(*best->row, *one.row);
    return exact(one) && ratio && verdict_of(*ratio) == PairVerdict::slower;
  });
  if (other != ranked.end()) best = other;
  if (best != ranked.end()) std::rotate(ranked.begin(), best, best + 1);
  for (std::size_t i = 1; i < ranked.size(); ++i) put_beside(ranked.front(), ranked[i]);
  return ranked;
}

std::vector<std::string> calls_of(const SweepRow& row, const std::vector<std::string>& inputs) {
  const std::string name = row.variant.substr(row.variant.find('_') + 1);
  if (!row.plugin.empty()) return {fmt::format("{} of the plugin {}", row.variant, row.plugin)};
  if (of_pytorch(row)) return {fmt::format("PyTorch, as baselines/pytorch/ops/{}.py; {}", row.op, row.reason)};
  if (of_worker(row)) return {fmt::format("{}; as baselines/peers/{}/{}.py", row.algorithm, row.op, name)};
  if (row.op == kWholeNetwork) return {"noisefloor forward, sample, stream or train, with --plan " + name};
  if (row.kind == "baseline") return {fmt::format("C++, as baselines/{}_*.cpp; {}", row.variant, row.algorithm)};
  std::string arguments;
  for (const std::string& input : inputs) arguments += fmt::format("{0}={0}, ", input);
  for (const auto& [field, value] : fields_of(row.problem)) {
    if (std::ranges::count(inputs, field) > 0) continue;  // 1: the tensor is there
    const char* const quote = parse_number<double>(value) ? "" : "\"";
    arguments += fmt::format("{}={}{}{}, ", field, quote, value, quote);
  }
  return {fmt::format("Python: noisefloor.ops.{}({}dtype=\"{}\", variant=\"{}\")", row.op, arguments, row.dtype,
                      row.variant),
          fmt::format("C++: the row \"{0}\" of noisefloor::{1}::variants(), kernels/{1}/{1}.h", row.variant, row.op)};
}

TextReport which_report(const RunFiles& run, const ProblemId& id, const std::vector<std::string>& inputs) {
  TextPart times{
      fmt::format("{} on {}, {}", id.name(), run.environment.device, run.folder.string()),
      {{"variant", "warm us", "interval", "cold us", "x first", "error", "GB/s", "GFLOP/s", "% roof", "version"}}};
  TextPart others{"without a warm time", {{"variant", "status", "reason"}}};
  const std::vector<RankedRow> ranked = rank_rows(run, id);
  std::string equals;
  for (const RankedRow& one : ranked) {
    const SweepRow& row = *one.row;
    if (&one != &ranked.front() && row.lossy.empty() && verdict_of(one.over_first) == PairVerdict::equal)
      equals += (equals.empty() ? "; equal: " : ", ") + row.variant;
    times.table.push_back({row.variant, cell_of(row.time_warm_us, "{:.2f}"),
                           one.warm ? fmt::format("{:.2f} to {:.2f}", one.warm->low, one.warm->high) : "-",
                           cell_of(row.time_cold_us, "{:.2f}"), &one == &ranked.front() ? "1" : beside_first(one),
                           cell_of(row.max_rel_error, "{:.2g}"), cell_of(row.gbps, "{:.0f}"),
                           cell_of(row.gflops, "{:.0f}"), cell_of(row.pct_of_roof, "{:.1f}"), version_of(run, row)});
    if (!row.lossy.empty()) times.lines.push_back(fmt::format("{} is lossy: {}", row.variant, row.lossy));
  }
  for (const SweepRow& row : run.rows)
    if (row.problem_id() == id && (row.status != Outcome::ok || !row.time_warm_us))
      others.table.push_back({row.variant, to_string(row.status), row.reason});
  times.lines.push_back(fmt::format(
      "warm: as a network runs it; equal: intervals overlap, or times within {:.0f} %; rates and % roof: of cold times",
      100 * kAlike));
  if (ranked.empty()) return {"no variant has a warm time", {times, others}};
  const SweepRow& best = *ranked.front().row;
  return {fmt::format("{} is the fastest, {:.2f} us{}", best.variant, *best.time_warm_us, equals),
          {times, others, {"how to call " + best.variant, {}, calls_of(best, inputs)}}};
}

TextReport which_table(const RunFiles& run, std::vector<std::string> networks, std::vector<std::string> ops) {
  std::vector<std::string> known_ops, known;
  for (const SweepRow& row : run.rows) {
    add_once(known_ops, row.op);
    for (const auto& [name, count] : parse_networks(row.networks)) add_once(known, name);
  }
  if (networks == std::vector<std::string>{"all"}) networks.clear();
  for (const auto& [asked, has] : {std::pair(&networks, &known), std::pair(&ops, &known_ops)})
    for (const std::string& name : *asked)
      if (std::ranges::count(*has, name) == 0)
        throw failure("{} has no row of '{}'; it has {}", run.folder.string(), name, fmt::join(*has, ", "));
  TextReport report;
  VerdictCounts counts{};
  std::vector<std::string> once;
  for (const std::string& op : ops.empty() ? known_ops : ops) add_once(once, op);
  for (const std::string& op : once) report.parts.push_back(part_of(run, op, networks, counts));
  report.parts.push_back(
      {"",
       {},
       {fmt::format("warm us, as a network runs it; speedup: of our fastest over the fastest baseline, with its "
                    "interval where the two were timed in turns, else of times apart (equal: within {:.0f} %)",
                    100 * kAlike)}});
  std::vector<std::string> commits;  // of its times
  for (const SweepRow& row : run.rows)
    if (row.status == Outcome::ok && std::ranges::count(once, row.op) > 0 && !uses_of(row, networks).empty() &&
        std::ranges::count(commits, row.commit) == 0)
      commits.push_back(row.commit);
  if (commits.empty()) throw failure("{}: no problem of these networks and ops has a time", run.folder.string());
  report.headline = fmt::format(
      "{}, commit {}: beside the fastest baseline ours is faster at {} problems, slower at {}, equal at {}, "
      "unresolved at {}; {} lack a time of either",
      run.environment.device, fmt::join(commits, ", "), counts[0], counts[1], counts[2], counts[3], counts[4]);
  return report;
}

std::vector<std::string> nearest_problems(const std::vector<SweepRow>& rows, const ProblemId& id, std::size_t most) {
  std::set<std::pair<double, std::string>> found;
  for (const SweepRow& row : rows)
    if (row.op == id.op) found.emplace(distance(fields_of(id.problem), fields_of(row.problem)), row.problem);
  std::vector<std::string> names;
  for (const auto& [off, name] : found)
    if (names.size() < most) names.push_back(name);
  return names;
}

}  // namespace noisefloor
