// noisefloor explain: what limits a row of a run, and what to try next. From the run's files; no GPU.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <sstream>

#include "bench/commands/commands.h"
#include "kernels/core/fields.h"
#include "reports/explain/explain.h"
#include "reports/run/files.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

struct ExplainArguments {
  std::vector<std::string> words;
  std::string run;
  bool json = false;
};

// What was named of op, problem, dtype and variant, in that order: with slashes as a case's name is, or as a line of a
// table has them, with all that stands behind them there.
std::vector<std::string> parts_of(const std::vector<std::string>& words) {
  std::vector<std::string> parts;
  std::istringstream line(fmt::format("{}", fmt::join(words, " ")));
  for (std::string word; line >> word;) {
    if (parts.size() == 4 && (std::isdigit(static_cast<unsigned char>(word.front())) != 0 || word == "-")) return parts;
    for (std::size_t begin = 0, end; begin <= word.size(); begin = end + 1) {
      end = std::min(word.find('/', begin), word.size());
      parts.push_back(word.substr(begin, end - begin));
    }
  }
  if (parts.size() > 4) throw refusal("'{}' is more than a case: op/problem/dtype/variant", fmt::join(words, " "));
  return parts;
}

// A table cuts a long problem: "n=1,h=64...".
bool fits(const std::string& part, const std::string& wanted, bool as_beginning) {
  const bool cut = wanted.ends_with("...");
  return cut || as_beginning ? part.starts_with(cut ? wanted.substr(0, wanted.size() - 3) : wanted) : part == wanted;
}

// The row whose name is that, or the only one whose name begins so; else says which part of it nothing has.
const SweepRow& require_row(const std::vector<SweepRow>& rows, const std::vector<std::string>& wanted,
                            const fs::path& folder) {
  constexpr std::size_t kShown = 8;
  std::vector<const SweepRow*> left;
  for (const SweepRow& row : rows) left.push_back(&row);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto& [what, part] = kCaseParts[i];
    std::vector<std::string> known;
    for (const SweepRow* row : left)
      if (std::find(known.begin(), known.end(), row->*part) == known.end()) known.push_back(row->*part);
    const bool whole = i + 1 < wanted.size() || std::ranges::find(known, wanted[i]) != known.end();
    std::erase_if(left, [&](const SweepRow* row) { return !fits(row->*part, wanted[i], !whole); });
    if (!left.empty()) continue;
    const std::string others = known.size() <= kShown ? fmt::format("; it has {}", fmt::join(known, " "))
                                                      : fmt::format("; it has {}", known.size());
    throw refusal("{} has no row of {} '{}'{}{}", folder.string(), what, wanted[i], others,
                  did_you_mean(wanted[i], known));
  }
  if (left.size() == 1) return *left.front();
  std::string names;
  for (std::size_t i = 0; i < std::min(left.size(), kShown); ++i) names += "\n  " + left[i]->name();
  throw refusal("{}: {} rows begin so; name more of op/problem/dtype/variant:{}{}", folder.string(), left.size(), names,
                left.size() > kShown ? "\n  ..." : "");
}

int explain_row(const ExplainArguments& arguments) {
  const std::vector<std::string> wanted = parts_of(arguments.words);
  const fs::path folder = arguments.run.empty() ? newest_run() : fs::path(arguments.run);
  if (folder.empty())
    throw InvalidInput("--run: there is no run in runs/; name the folder of one (noisefloor sweep makes it)");
  CeilingTable ceilings;
  const RunFiles run = read_completed_run(folder, ceilings);
  const SweepRow& row = require_row(run.rows, wanted, folder);
  const auto explanation = explain(run, row, ceilings);
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;  // of bytes that are no text
  fmt::print("{}",
             arguments.json ? explanation.dump(2, ' ', false, kReplace) + "\n" : explanation_text(explanation, row));
  return kDone;
}

}  // namespace

void add_explain_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "explain", "Say what limits a row, with the evidence, and what to try next", explain_row);
  command
      .add_option("case", arguments.words,
                  "op/problem/dtype/variant, or these four as a table prints them; as much as only one row begins with")
      ->required();
  command.add_option("--run", arguments.run, "Folder of a run (default: the newest in runs/)");
  command.add_flag("--json", arguments.json, "Print one JSON object");
  command.footer("No GPU is needed. The rules: docs/explain.md.");
}

}  // namespace noisefloor
