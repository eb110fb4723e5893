#include "bench/sweep/process_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>

#include "bench/sweep/side_by_side.h"
#include "reports/run/process_folders.h"
#include "reports/run/selected_cases.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_cases(const fs::path& process, const CaseId& id, const std::string& what) {
  throw std::runtime_error(fmt::format(
      "{}: {} {}; choose the same cases (its env.json has the command lines), or give another --out, or --fresh",
      process.string(), what, id.name()));
}

struct Held {
  fs::path folder;
  std::set<CaseId> others;  // rows that are not chosen now
};

}  // namespace

std::variant<std::vector<CaseId>, int> chosen_cases(std::vector<std::string> arguments, const fs::path& run) {
  arguments.emplace_back("--benchmark_list_tests");
  const SideBySideResult listed =
      run_side_by_side({{"cases", {std::move(arguments), {}, {}, "/proc/self/exe"}}}, stderr);
  if (listed.interrupted_by != 0) end_as_told(listed.interrupted_by, run);
  if (listed.worst_exit_code() != 0) return listed.worst_exit_code();
  std::vector<CaseId> cases;
  std::istringstream lines(listed.lanes.front().output);
  for (std::string line; std::getline(lines, line);) cases.push_back(CaseId::parse(line));
  return cases;
}

void require_same_cases(const fs::path& run, int processes, const std::vector<CaseId>& chosen) {
  const std::set<CaseId> now(chosen.begin(), chosen.end());
  std::optional<Held> first;
  for (int process = 1; process <= processes; ++process) {
    Held held{run / process_folder_name(process), {}};
    std::vector<SweepRow> rows;
    if (const auto file = held.folder / "sweep.csv"; fs::exists(file) && fs::file_size(file) > 0)
      rows = read_sweep_csv(file);
    for (const SweepRow& row : rows)
      if (!now.contains(row)) held.others.insert(row);
    for (const CaseId& id : cases_without_row(read_selected_cases(held.folder), rows))
      if (!now.contains(id)) refuse_cases(held.folder, id, "was to have a case that this command does not choose,");
    if (!first) {
      first = std::move(held);
      continue;
    }
    const auto compare = [](const Held& has, const Held& lacks) {
      for (const CaseId& id : has.others)
        if (!lacks.others.contains(id))
          refuse_cases(has.folder, id,
                       fmt::format("has a case that this command does not choose and {} lacks,",
                                   lacks.folder.filename().string()));
    };
    compare(*first, held);
    compare(held, *first);
  }
}

}  // namespace noisefloor
