// noisefloor merge: one run folder out of the shards of a sweep.
#include <fmt/format.h>

#include "bench/commands/commands.h"
#include "reports/run/merge_runs.h"

namespace noisefloor {
namespace {

struct MergeArguments {
  std::vector<std::string> folders;
  std::string out;
  MergeOptions options;
};

int merge(const MergeArguments& arguments) {
  const MergeResult merged =
      merge_runs({arguments.folders.begin(), arguments.folders.end()}, arguments.out, arguments.options);
  for (const std::string& what : merged.missing) fmt::print(stderr, "missing: {}\n", what);
  for (const std::string& note : merged.notes) fmt::print(stderr, "note: {}\n", note);
  fmt::print("{} rows of {} folders in {}\n", merged.rows, arguments.folders.size(), arguments.out);
  if (merged.failed > 0) fmt::print(stderr, "{} cases are incorrect or failed on the device\n", merged.failed);
  return merged.failed > 0 ? kNotSo : kDone;
}

}  // namespace

void add_merge_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(app, result, "merge",
                                          "Merge the shards of a sweep --shard I/N, or sweeps of different cases: run "
                                          "folders of one device and build",
                                          merge);
  command.add_option("run_dir", arguments.folders, "Run folders")->required();
  command.add_option("--out", arguments.out, "New folder for the merged run")->required();
  command.add_flag("--replace", arguments.options.replace, "Replace what an earlier merge wrote to --out");
  command.add_flag("--partial", arguments.options.partial, "Merge what is there even if shards or cases are missing");
  command.add_option("--over", arguments.options.over,
                     "Keep of this earlier run, of any commit on the same kind of device, the rows of all problems that "
                     "the folders do not have");
  command.footer(
      "What commands made of a run (report.html, plan.csv, captures) is not taken over.\n"
      "Exit code: 0 all rows of ours are correct, 1 one is incorrect or failed, 2 could not merge.");
}

}  // namespace noisefloor
