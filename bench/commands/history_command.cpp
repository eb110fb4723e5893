// noisefloor history: how cases, or networks' totals, went over recorded runs.
#include <fmt/format.h>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "reports/history/history.h"

namespace noisefloor {
namespace {

struct HistoryArguments {
  std::vector<std::string> folders;
  std::string case_pattern, networks, ops, variants, time = "cold", html, csv;
};

int history(const HistoryArguments& arguments) {
  OutputFiles outputs;
  outputs.add("--csv", arguments.csv);
  outputs.add("--html", arguments.html);
  const auto runs = read_history({arguments.folders.begin(), arguments.folders.end()});
  for (const HistoryRun& run : runs) outputs.add_input_run("a file of a run", run.files.folder);
  const bool warm = arguments.time == "warm";
  const History traced = trace_history(runs, {arguments.case_pattern, split_list(arguments.networks),
                                              split_list(arguments.ops), split_list(arguments.variants), warm});
  if (!arguments.csv.empty()) outputs.write("--csv", history_csv(runs, traced));
  if (!arguments.html.empty()) {
    std::string message;
    outputs.write("--html", history_html(runs, traced, warm, &message));
    if (!message.empty()) fmt::print(stderr, "noisefloor: {}: {}\n", arguments.html, message);
  }
  outputs.commit();
  fmt::print("{}", history_table(runs, traced));
  return kDone;
}

}  // namespace

void add_history_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "history", "Show the trend of cases, or of networks' totals, over runs", history);
  command.add_option("dirs", arguments.folders, "Run folders, or folders of run folders")->required();
  command.add_option("--case", arguments.case_pattern,
                     "Instead of totals, cases whose op/problem/dtype/variant matches this regular expression");
  command.add_option("--network", arguments.networks, "Only these networks, comma-separated (default: all)");
  command.add_option("--op", arguments.ops, "Only these ops, comma-separated (default: all)");
  command.add_option("--variant", arguments.variants,
                     "Only these variants; of totals also 'own best' or 'fastest' (default: own best; of cases: all)");
  command.add_option("--time", arguments.time, "Cold or warm times")
      ->check(CLI::IsMember({"cold", "warm"}))
      ->capture_default_str();
  add_output_file(command, "--html", arguments.html, "Also write the trend as an interactive page");
  add_output_file(command, "--csv", arguments.csv, "Also write the trend as CSV");
  command.footer(
      "A change of level is marked if the levels differ by more than 3 % and 0.5 us, and the intervals of the runs'\n"
      "medians lie apart. Runs of different devices are kept apart.");
}

}  // namespace noisefloor
