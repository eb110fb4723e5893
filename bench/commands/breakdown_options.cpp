// --breakdown of the commands that run networks.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <optional>

#include "bench/commands/commands.h"
#include "bench/commands/pipeline_options.h"
#include "bench/counters/kernel_trace.h"

namespace noisefloor {
namespace {

constexpr std::size_t kTopNodes = 20;
constexpr const char* kTable = "table";  // --breakdown alone

// The run folder whose rows are compared with: the one that was asked for, or where the plan comes from.
std::optional<fs::path> folder_of_rows(const BreakdownArguments& arguments, const std::string& plan) {
  if (!arguments.rows.empty()) return arguments.rows;
  const auto folder = fs::path(plan).parent_path();
  if (fs::is_regular_file(plan) && fs::is_regular_file(folder / "sweep.csv")) return folder;
  return std::nullopt;
}

}  // namespace

void add_breakdown_options(CLI::App& command, BreakdownArguments& arguments) {
  const auto take = [&](const std::vector<std::string>& words) {
    arguments.table = true;
    for (const std::string& word : words) {
      if (word.empty()) throw InvalidInput("--breakdown: its value is empty; give one, or leave it out");
      if (word == kTable) continue;
      std::string& place = fs::is_directory(word) ? arguments.rows : arguments.csv;
      if (!place.empty()) throw refusal("--breakdown {}: {} is given already", word, place);
      place = word;
    }
  };
  command
      .add_option_function<std::vector<std::string>>(
          "--breakdown", take,
          "Print time by op and by node; on a GPU from CUPTI's records, with the gaps between launches. A file: also "
          "write it as CSV: op,node,problem,variant,kernels,time_us,gap_before_us. A run folder: its warm times stand "
          "beside it (default: the plan's folder, if it has rows)")
      ->expected(0, 2)
      ->type_name("[OUTFILE] [RUN]")
      ->default_str(kTable);
  add_output_file(command, "--trace", arguments.trace,
                  "Write one call as a timeline (JSON) for ui.perfetto.dev: nodes, gaps, kernels, memory");
}

void check_breakdown(const BreakdownArguments& arguments, const std::string& plan, const std::string& device,
                     OutputFiles& files) {
  if (!arguments.wanted()) return;
  if (const auto folder = folder_of_rows(arguments, plan))
    files.add_input_run(arguments.rows.empty() ? "a file of the run of --plan" : "a file of the run of --breakdown",
                        *folder);
  files.add("--breakdown", arguments.csv);
  files.add("--trace", arguments.trace);
  if (!arguments.rows.empty() && !fs::is_regular_file(fs::path(arguments.rows) / "sweep.csv"))
    throw refusal("--breakdown {}: is a folder, but not of a run: it has no sweep.csv", arguments.rows);
  std::string why;
  if (device == "host" || cuda_device_count(why) == 0) return;
  try {
    require_trace_library();
  } catch (const CountersUnavailable& error) {
    throw refusal("--breakdown and --trace need CUPTI's records: {}", error.what());
  }
}

void break_down(const BreakdownArguments& arguments, Platform& platform, pipeline::Executor& executor,
                const std::string& plan, const Launch& enqueue, const std::string& what, OutputFiles& files,
                const pipeline::Meeting& meet) {
  const std::string& device = platform.description().name;
  pipeline::Breakdown breakdown = pipeline::measure_breakdown(
      platform, executor, enqueue, fmt::format("{}, {}", executor.network().name(), what), meet);
  if (const auto folder = folder_of_rows(arguments, plan)) pipeline::use_rows(breakdown, *folder, device);
  if (!arguments.csv.empty()) files.write("--breakdown", pipeline::breakdown_csv(breakdown));
  if (!arguments.trace.empty()) files.write("--trace", pipeline::timeline_json(breakdown, device));
  fmt::print("{}\n", pipeline::breakdown_text(breakdown, kTopNodes));
}

}  // namespace noisefloor
