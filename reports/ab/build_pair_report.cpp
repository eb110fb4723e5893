#include "reports/ab/build_pair_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "reports/run/csv.h"

namespace noisefloor {
namespace {

constexpr std::size_t kShown = 100;  // of each kind of verdict; GitHub cuts a comment at 65,536 characters

std::string slower_by(double ratio) {
  return fmt::format("{:+.2f} %", 100 * (ratio - 1));
}

// As the change of the time: the inverse of the ratio.
std::string change(const std::vector<double>& passes) {
  const Ratio slower = ratio_of_rounds(passes).inverse();
  return fmt::format("{} ({} to {})", slower_by(slower.value), slower_by(slower.low), slower_by(slower.high));
}

// A build's own words, as one line of a table.
std::string first_words(const std::string& why) {
  constexpr std::size_t kMost = 200;
  std::string text = clipped(why, kMost);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; }, ' ');
  return text;
}

// In which column they stand.
constexpr std::ptrdiff_t kBehindWarm = 3;

// In every pass, or their ratio would be of other passes than the time's.
bool has_cycles(const BuildPair& pair) {
  return pair.why_not.empty() && pair.cycles.size() >= 2 && pair.cycles.size() == pair.warm.size();
}

struct Judged {
  const BuildPair* pair;
  BuildVerdict verdict;
};

std::vector<Judged> worst_first(const BuildPairText& text) {
  std::vector<Judged> all;
  for (const BuildPair& pair : text.pairs) all.push_back({&pair, verdict_of(pair, text.resolve)});
  std::stable_sort(all.begin(), all.end(), [](const Judged& a, const Judged& b) { return a.verdict < b.verdict; });
  return all;
}

std::string headline(const BuildPairText& text, const std::vector<Judged>& all) {
  std::string counts;
  for (int i = 0; i < kBuildVerdicts; ++i) {
    const auto verdict = static_cast<BuildVerdict>(i);
    const auto count = std::count_if(all.begin(), all.end(), [&](const Judged& one) { return one.verdict == verdict; });
    if (count > 0) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, to_string(verdict));
  }
  return fmt::format("{} against {}: {} cases, resolving {:g} %: {}", text.new_name, text.old_name, all.size(),
                     100 * text.resolve, counts);
}

}  // namespace

TextReport report_of(const BuildPairText& text) {
  const auto all = worst_first(text);
  const bool clocks = std::ranges::any_of(text.pairs, has_cycles);
  TextPart part{"", {{"verdict", "case", "warm", "cold", "passes", "why"}}};
  if (clocks) part.table[0].insert(part.table[0].begin() + kBehindWarm, "SM cycles, warm");
  std::size_t of_verdict = 0, left_out = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto& [pair, verdict] = all[i];
    of_verdict = i > 0 && all[i - 1].verdict == verdict ? of_verdict + 1 : 0;
    using enum BuildVerdict;
    if (verdict == equal || verdict == same_code || verdict == neither) continue;
    if (of_verdict >= kShown) {
      ++left_out;
      continue;
    }
    const bool timed = pair->why_not.empty();
    part.table.push_back({to_string(verdict), pair->name, timed ? change(pair->warm) : "-",
                          timed ? change(pair->cold) : "-", std::to_string(pair->warm.size()),
                          first_words(pair->why_not)});
    if (!clocks) continue;
    part.table.back().insert(part.table.back().begin() + kBehindWarm, has_cycles(*pair) ? change(pair->cycles) : "-");
  }
  if (left_out > 0) part.lines.push_back(fmt::format("not shown: {} more", left_out));
  return {headline(text, all), {std::move(part), text.beside}};
}

std::string csv_text(const BuildPairText& text) {
  std::string lines =
      "case,verdict,warm,warm_low,warm_high,cold,cold_low,cold_high,passes,reason,cycles,cycles_low,cycles_high\n";
  const auto numbers = [](const std::vector<double>& passes, bool known) -> std::string {
    if (!known) return ",,,";
    const Ratio ratio = ratio_of_rounds(passes);
    return fmt::format(",{:.5g},{:.5g},{:.5g}", ratio.value, ratio.low, ratio.high);
  };
  for (const BuildPair& pair : text.pairs) {
    const bool timed = pair.why_not.empty();
    lines += fmt::format("{},{}{}{},{},{}{}\n", quote_csv(pair.name), to_string(verdict_of(pair, text.resolve)),
                         numbers(pair.warm, timed), numbers(pair.cold, timed), pair.warm.size(),
                         quote_csv(first_words(pair.why_not)), numbers(pair.cycles, has_cycles(pair)));
  }
  return lines;
}

}  // namespace noisefloor
