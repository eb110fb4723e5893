// noisefloor roofline (or report): what a run's files say, without a GPU.
#include <fmt/format.h>

#include "bench/commands/commands.h"
#include "reports/page/run_report.h"
#include "reports/run/run_files.h"
#include "reports/totals/totals.h"

namespace noisefloor {

void write_roofline_files(const fs::path& folder) {
  RunFiles run = read_run(folder, RunEnd::may_lack);
  std::vector<SweepRow>& rows = run.rows;
  if (rows.empty()) throw refusal("{}: the sweep has no rows", (folder / "sweep.csv").string());
  const CeilingTable ceilings = read_ceilings(folder / "ceilings.csv");
  complete_rows(rows, ceilings);
  if (const std::string message = write_run_report(folder, rows, run.samples); !message.empty())
    fmt::print(stderr, "noisefloor: report.html: {}\n", message);
  write_roofline_csv(folder / "roofline.csv", rows, ceilings);
  write_plan_csv(folder / "plan.csv", rows);
  const auto totals = network_totals(rows, read_network_problems(folder, rows), run.samples);
  write_totals_csv(folder / "totals.csv", totals);
  fmt::print("{}\n{}\n", row_table(rows), totals_table(totals));
  for (const Ceiling& one : ceilings.rows) fmt::print("ceiling {:<12} {:>12.1f} {}\n", one.name, one.value, one.unit);
  fmt::print("wrote {}, totals.csv, plan.csv and report.html\n", (folder / "roofline.csv").string());
}

namespace {

int roofline(const std::string& run) {
  write_roofline_files(run);
  return kDone;
}

}  // namespace

void add_roofline_command(CLI::App& app, CommandResult result) {
  auto [command, folder] =
      add_command(app, result, "roofline",
                  "Write roofline.csv, totals.csv, plan.csv and report.html of a run, and print its tables", roofline);
  command.alias("report");
  command.add_option("run_dir", folder, "The folder of a run")->required();
}

}  // namespace noisefloor
