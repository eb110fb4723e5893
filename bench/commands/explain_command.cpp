// noisefloor explain: what limits a row of a run, and what to try next. From the run's files; no GPU.
#include <fmt/format.h>

#include <algorithm>

#include "bench/commands/add_command.h"
#include "kernels/core/fields.h"
#include "reports/explain.h"
#include "reports/roofline.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

struct ExplainArguments {
  std::string name, run;
  bool json = false;
};

// The newest run folder below runs/, where a sweep puts them.
fs::path newest_run() {
  fs::path newest;
  fs::file_time_type time;
  std::error_code error;
  for (const auto& device : fs::directory_iterator("runs", error))
    for (const auto& folder : fs::directory_iterator(device.path(), error)) {
      if (is_leftover(folder.path().filename().string())) continue;
      const auto written = fs::last_write_time(folder.path() / "sweep.csv", error);
      if (!error && (newest.empty() || written > time)) newest = folder.path(), time = written;
    }
  if (newest.empty())
    throw InvalidInput("--run: there is no run in runs/; name the folder of one (noisefloor sweep makes it)");
  return newest;
}

// The row of a case; where there is none, says which part of the name nothing has.
const SweepRow& require_row(const std::vector<SweepRow>& rows, const CaseId& id, const fs::path& folder) {
  const std::pair<const char*, std::string CaseId::*> parts[] = {
      {"op", &CaseId::op}, {"problem", &CaseId::problem}, {"dtype", &CaseId::dtype}, {"variant", &CaseId::variant}};
  std::vector<const SweepRow*> left;
  for (const SweepRow& row : rows) left.push_back(&row);
  for (const auto& [what, part] : parts) {
    std::vector<std::string> known;
    for (const SweepRow* row : left)
      if (std::find(known.begin(), known.end(), row->*part) == known.end()) known.push_back(row->*part);
    std::erase_if(left, [&](const SweepRow* row) { return row->*part != id.*part; });
    if (!left.empty()) continue;
    constexpr std::size_t kShown = 8;
    const std::string others = known.size() <= kShown ? fmt::format("; it has {}", fmt::join(known, " "))
                                                      : fmt::format("; it has {}", known.size());
    throw InvalidInput(fmt::format("{} has no row of {} '{}'{}{}", folder.string(), what, id.*part, others,
                                   did_you_mean(id.*part, known)));
  }
  return *left.front();
}

int explain_row(const ExplainArguments& arguments) {
  CaseId id;
  try {
    id = CaseId::parse(arguments.name);
  } catch (const std::runtime_error& error) {
    throw InvalidInput(fmt::format("{}, as noisefloor sweep --benchmark_list_tests prints it", error.what()));
  }
  const fs::path folder = arguments.run.empty() ? newest_run() : fs::path(arguments.run);
  RunFiles run = read_run(folder, RunEnd::may_lack);
  const fs::path file = folder / "ceilings.csv";
  CeilingTable ceilings;
  if (fs::symlink_status(file).type() != fs::file_type::not_found) ceilings = read_ceilings(file);
  const SweepRow& row = require_row(run.rows, id, folder);
  // A host is named by its cores in rows, and by its threads in ceilings.
  if (!on_host(row) && !ceilings.device.empty() && ceilings.device != row.device)
    throw InvalidInput(
        fmt::format("{}: its ceilings are of '{}', the row is of '{}'", file.string(), ceilings.device, row.device));
  complete_rows(run.rows, ceilings);
  const Explanation explanation = explain(run, row, ceilings);
  fmt::print("{}", arguments.json ? explanation_json(explanation) : explanation_text(explanation));
  return kDone;
}

}  // namespace

void add_explain_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "explain", "Say what limits a row, with the evidence, and what to try next", explain_row);
  command.add_option("case", arguments.name, "op/problem/dtype/variant")->required();
  command.add_option("--run", arguments.run, "Folder of a run (default: the newest in runs/)");
  command.add_flag("--json", arguments.json, "Print one JSON object");
  command.footer("No GPU is needed. The rules: docs/explain.md.");
}

}  // namespace noisefloor
