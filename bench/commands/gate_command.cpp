// noisefloor gate: two runs against each other, from their files alone; gate accept, gate calibrate.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/platform/build_info.h"
#include "bench/sweep/fan_out.h"
#include "bench/sweep/workers.h"
#include "reports/gate/gate.h"
#include "reports/run/files.h"
#include "reports/run/json_file.h"
#include "reports/run/network_problems.h"

namespace noisefloor {
namespace {

struct GateArguments {
  std::string baseline, candidate, noise, confirm, filter, markdown, junit, bencher, benchmark_action;
  bool new_rows = false, launches = false;
};

struct AcceptArguments {
  std::string baseline, candidate;
  bool force = false;
};

struct CalibrateArguments {
  std::string baseline;
  std::vector<std::string> runs;
};

// What `gate calibrate` measured: of the file that is named, else of that beside the baseline.
std::optional<GateNoise> noise_for(const std::string& named, const fs::path& baseline) {
  if (fs::is_directory(named))
    throw refusal(
        "--noise is {}, a folder, not a file of gate calibrate: noisefloor gate calibrate --baseline {} RUN RUN RUN",
        named, baseline.string());
  const fs::path file = named.empty() ? baseline / kNoiseFile : fs::path(named);
  if (named.empty() && !fs::exists(file)) return std::nullopt;
  return read_noise(file);
}

// Regular expressions of exactly these cases, each short enough for --benchmark_filter.
std::vector<std::string> filters_of(const std::vector<CaseId>& cases) {
  constexpr std::size_t kLongest = 990;  // name_filter() takes 1,000 characters
  std::vector<std::string> filters;
  for (const CaseId& id : cases) {
    std::string name;
    for (const char c : id.name()) name += std::string(std::strchr(".*+?^${}()|[]\\", c) == nullptr ? "" : "\\") + c;
    if (filters.empty() || filters.back().size() + name.size() > kLongest)
      filters.push_back(name);
    else
      filters.back() += "|" + name;
  }
  for (std::string& filter : filters) filter = "^(" + filter + ")$";
  return filters;
}

// Sweeps the suspects into `folder`, as the candidate was swept; what has a row there is not measured again.
RunFiles measured_again(const fs::path& folder, const RunFiles& candidate, const GateResult& result) {
  constexpr std::size_t kMost = 200;
  std::vector<CaseId> suspects;
  for (const GateRow& row : result.rows)
    if (row.is_suspect()) suspects.push_back(*row.change.rows.b);
  if (fs::exists(folder / "sweep.csv")) suspects = cases_without_row(suspects, read_run(folder, RunEnd::may_lack).rows);
  if (suspects.empty()) return read_run(folder);
  if (suspects.size() > kMost)
    throw refusal(
        "--confirm: {} rows regressed or may be much slower, more than the {} that are measured again: that is no "
        "chance; gate without it, or by --filter",
        suspects.size(), kMost);
  if (!same_code(build_info().commit, candidate.environment.commit))
    throw refusal(
        "--confirm measures with this program, of {}, and the candidate is of {}: run that build's noisefloor",
        build_info().commit, candidate.environment.commit);
  std::vector<std::string> line = {"noisefloor", "sweep"};
  if (const auto& lines = candidate.environment.command_lines; !lines.empty() && lines.back().size() > 1)
    line = without_options(lines.back(), {"--out", "--runs", "--budget", "--shard", "--counters", "--reuse"},
                           {"--fresh", "--no-duels", "--no-pairs", "--search-again"});
  std::erase_if(line, [](const std::string& word) { return word.starts_with("--benchmark_"); });  // its files stay
  line.insert(line.end(), {"--out", folder.string(), "--counters", "off", "--no-pairs"});
  fmt::print(stderr, "measuring {} suspects again, into {}\n", suspects.size(), folder.string());
  for (const std::string& filter : filters_of(suspects)) {
    ChildCommand command{line};
    command.arguments.push_back("--benchmark_filter=" + filter);
    command.program = "/proc/self/exe";
    const LaneResult done = fan_out({{"again", std::move(command)}}, stderr).front();
    if (done.exit_code == kCouldNot) throw refusal("--confirm: the sweep into {}: {}", folder.string(), done.ending);
  }
  return read_run(folder);
}

// What measures a plugin's suspects again is the file that the candidate had.
void require_same_plugin_files(const RunFiles& candidate, const RunFiles& again) {
  const auto before = read_json_object(candidate.folder / "env.json"),
             now = read_json_object(again.folder / "env.json");
  for (const auto& [name, digest] : before.items())
    if (name.starts_with(fact_of_plugin("")) && now.contains(name) && now.at(name) != digest)
      throw refusal("--confirm: {} has rows of another {} than {}: it was changed since", again.folder.string(), name,
                    candidate.folder.string());
}

int gate_runs(const GateArguments& arguments) {
  if (arguments.baseline.empty()) throw InvalidInput("--baseline is required: the folder of the run to judge by");
  if (arguments.candidate.empty()) throw InvalidInput("--candidate is required: the folder of the run to judge");
  OutputFiles outputs;
  outputs.add_input_run("--baseline", arguments.baseline);
  outputs.add_input_run("--candidate", arguments.candidate);
  outputs.add_input("--noise", arguments.noise);
  outputs.add("--markdown", arguments.markdown);
  outputs.add("--junit", arguments.junit);
  outputs.add("--bencher", arguments.bencher);
  outputs.add("--benchmark-action", arguments.benchmark_action);
  const RunFiles baseline = read_run(arguments.baseline), candidate = read_run(arguments.candidate);
  const std::optional<GateNoise> noise = noise_for(arguments.noise, arguments.baseline);
  GateOptions options{.pairs = {"", "", name_filter("--filter", arguments.filter)},
                      .new_rows = arguments.new_rows,
                      .launches = arguments.launches,
                      .noise = noise ? &*noise : nullptr};
  GateResult result = gate(baseline, candidate, options);
  std::optional<RunFiles> again;
  if (!arguments.confirm.empty() && std::ranges::any_of(result.rows, &GateRow::is_suspect)) {
    again = measured_again(arguments.confirm, candidate, result);
    require_same_plugin_files(candidate, *again);
    options.again = &*again;
    result = gate(baseline, candidate, options);
  }
  if (!arguments.markdown.empty()) outputs.write("--markdown", markdown_text(result));
  if (!arguments.junit.empty()) outputs.write("--junit", junit_xml(result));
  if (!arguments.bencher.empty()) outputs.write("--bencher", bencher_json(result));
  if (!arguments.benchmark_action.empty()) outputs.write("--benchmark-action", benchmark_action_json(result));
  outputs.commit();
  fmt::print("{}", terminal_text(result));
  return result.exit_code();
}

// The first baseline: there is nothing to hold it against, but it must be a run with something in it.
void require_timed(const RunFiles& candidate) {
  for (const SweepRow& row : candidate.rows) {
    if (is_wrong(row.status)) throw refusal("not accepted: {} is {}", row.name(), to_string(row.status));
    if (row.status == Outcome::ok) (void)candidate.samples_of(row);
  }
  if (std::ranges::count(candidate.rows, Outcome::ok, &SweepRow::status) == 0)
    throw refusal("{}: the run has no row that is ok", candidate.folder.string());
}

// A broken row is not a baseline, and a run that lacks rows would lose them. Rows that are slower may be meant.
int accept(const AcceptArguments& arguments) {
  std::optional<RunFiles> baseline;  // none yet: no folder, or one without a run
  if (fs::exists(fs::path(arguments.baseline) / "sweep.csv")) baseline = read_run(arguments.baseline);
  const RunFiles candidate = read_run(arguments.candidate);
  std::optional<GateResult> result;
  if (baseline) {
    result = gate(*baseline, candidate, {});
    fmt::print("{}", terminal_text(*result));
    if (result->count(GateGap::Weight::fails) > 0) {
      fmt::print(stderr, "noisefloor: not accepted: the candidate has rows that are incorrect or failed\n");
      return kNotSo;
    }
    for (const GateGap& gap : result->gaps)
      if (gap.lost) throw refusal("not accepted: {}: {}; nothing was written", gap.id.name(), gap.what);
  } else {
    require_timed(candidate);
  }
  // A run that was measured in bad company would judge all that come after it.
  if (const auto doubts = doubts_about(candidate, result ? &*result : nullptr); !doubts.empty()) {
    const std::string all = fmt::format("{}", fmt::join(doubts, "; "));
    if (!arguments.force)
      throw refusal("not accepted: {}: {}; --force accepts it all the same", arguments.candidate, all);
    fmt::print(stderr, "warning: {}: {}\n", arguments.candidate, all);
  }
  replace_baseline(arguments.baseline, arguments.candidate);
  fmt::print("accepted: {} is the run of commit {} now, with {} timed rows\n", arguments.baseline,
             candidate.environment.commit, std::ranges::count(candidate.rows, Outcome::ok, &SweepRow::status));
  return kDone;
}

int calibrate(const CalibrateArguments& arguments) {
  std::vector<RunFiles> runs;
  for (const std::string& folder : arguments.runs) runs.push_back(read_run(folder));
  const MeasuredNoise measured = measure_noise(runs);
  if (const std::string device = read_run(arguments.baseline).environment.device; device != measured.noise.device)
    throw refusal("gate calibrate: the runs are of '{}', the baseline {} of '{}'", measured.noise.device,
                  arguments.baseline, device);
  for (const std::string& row : measured.left_out) fmt::print(stderr, "left out: {}\n", row);
  const auto file = fs::path(arguments.baseline) / kNoiseFile;
  write_atomically(file, to_json(measured.noise));
  std::vector<double> all;
  for (const auto& [of, noise] : measured.noise.rows) all.push_back(noise);
  std::ranges::sort(all);
  const auto of = [&](double share) {
    return 100 * all[static_cast<std::size_t>(share * static_cast<double>(all.size() - 1))];
  };
  fmt::print(
      "{}: from {} runs, {} phases of rows: half of them below {:.2f} %, nine in ten below {:.2f} %, all below "
      "{:.2f} %\n",
      file.string(), runs.size(), all.size(), of(0.5), of(0.9), of(1));
  return kDone;
}

}  // namespace

void add_gate_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "gate", "Judge a run by a baseline: did anything become slower?", gate_runs);
  command.add_option("--baseline", arguments.baseline, "Folder of the run to judge by");
  command.add_option("--candidate", arguments.candidate, "Folder of the run to judge");
  command.add_option("--noise", arguments.noise,
                     "What gate calibrate measured (default: gate_noise.json beside the baseline)");
  command.add_option(
      "--confirm", arguments.confirm,
      "Measure rows that regressed or block again, into this run folder; that decides (rows that are there stay)");
  command.add_option("--filter", arguments.filter,
                     "Only rows whose op/problem/dtype/variant matches this regular expression");
  command.add_flag("--launches", arguments.launches,
                   "Fail if a row of ours launches other kernels than before, or more or fewer");
  command.add_flag("--new-rows", arguments.new_rows, "Name rows that the baseline lacks, but judge without them");
  add_output_file(command, "--markdown", arguments.markdown, "Write the tables as GitHub-flavoured Markdown");
  add_output_file(command, "--junit", arguments.junit, "Write the verdicts as JUnit XML");
  add_output_file(command, "--bencher", arguments.bencher,
                  "Write the candidate's times in Bencher's metric format (JSON)");
  add_output_file(command, "--benchmark-action", arguments.benchmark_action,
                  "Write the times as github-action-benchmark's customSmallerIsBetter (JSON)");
  const auto alone = [&, &gate = command](CLI::App& subcommand) {
    for (CLI::Option* const option : gate.get_options())
      if (option->get_name() != "--help") subcommand.excludes(option);
  };
  auto [accepting, accepted] =
      add_command(command, result, "accept", "Make a run the baseline, even if rows are slower", accept);
  accepting.add_option("--baseline", accepted.baseline, "Folder of the baseline, or for the first one")->required();
  accepting.add_option("--candidate", accepted.candidate, "Folder of the run that takes its place")->required();
  accepting.add_flag("--force", accepted.force,
                     "Take even a run that was interrupted or disturbed (other programs, throttled rows), or one much "
                     "faster than its baseline");
  alone(accepting);
  auto [calibrating, calibrated] = add_command(
      command, result, "calibrate", "Measure how much runs of one build differ here, for the gate", calibrate);
  calibrating.add_option("--baseline", calibrated.baseline, "Folder of the baseline: gate_noise.json is written there")
      ->required();
  calibrating.add_option("runs", calibrated.runs, "Folders of three runs or more, of one build on this machine")
      ->required();
  alone(calibrating);
  // Last: subcommands would inherit it.
  command.footer(
      "A row regressed if its warm serial or cold median, give or take the noise of both sides, slowed by more than\n"
      "1.5 % (cold: also 0.5 us), in time and in SM cycles.\n"
      "Exit code: 0 nothing regressed, 1 a row regressed or broke, 2 it could not be told (another device, something\n"
      "that the candidate lacks, a damaged file, an ambiguous row slower by more than 10 %).");
}

}  // namespace noisefloor
