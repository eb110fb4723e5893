// noisefloor gate and noisefloor compare: two runs against each other, from their files alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/commands/add_command.h"
#include "bench/commands/output_files.h"
#include "bench/commands/resources_gate.h"
#include "reports/gate/acceptance.h"
#include "reports/gate/baseline_folder.h"
#include "reports/gate/gate_report.h"
#include "reports/gate/spread.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

struct GateArguments {
  std::string baseline, candidate, markdown, junit, bencher, benchmark_action, filter;
  std::vector<std::string> noise, spread;
  bool accept = false, force = false, new_rows = false, resources = false, strict = false, launches = false;
  bool operator==(const GateArguments&) const = default;
};

struct CompareArguments {
  std::string a, b, markdown, filter, variant_a, variant_b;
};

// A run that was measured in bad company would judge all that come after it.
void require_no_doubts(const GateArguments& arguments, const RunFiles& candidate, const GateResult* against) {
  const auto doubts = doubts_about(candidate, against);
  if (doubts.empty()) return;
  const std::string all = fmt::format("{}", fmt::join(doubts, "; "));
  if (!arguments.force)
    throw InvalidInput(fmt::format("not accepted: {}: {}; --force accepts it all the same", arguments.candidate, all));
  fmt::print(stderr, "warning: {}: {}\n", arguments.candidate, all);
}

// A broken row is not a baseline, and a run that lacks rows would lose them. Rows that are slower may be meant.
int accept(const GateArguments& arguments, const RunFiles& candidate, const GateResult& result) {
  if (result.count(GateGap::Weight::fails) > 0) {
    fmt::print(stderr, "noisefloor: not accepted: the candidate has rows that are incorrect or failed\n");
    return kNotSo;
  }
  const bool loses = std::any_of(result.gaps.begin(), result.gaps.end(), [](const GateGap& gap) {
    return gap.weight == GateGap::Weight::blocks && gap.rows.a != nullptr && gap.rows.a->status == Outcome::ok;
  });
  if (loses) throw InvalidInput("not accepted: the candidate lacks rows that the baseline has; nothing was written");
  require_no_doubts(arguments, candidate, &result);
  replace_baseline(arguments.baseline, arguments.candidate);
  fmt::print("accepted: {} is the run of commit {} now\n", arguments.baseline,
             read_environment(std::filesystem::path(arguments.baseline) / "env.json").commit);
  return kDone;
}

// The first baseline: there is nothing to hold it against, but it must be a run with something in it.
int accept_first(const GateArguments& arguments) {
  const RunFiles candidate = read_run(arguments.candidate);
  std::size_t timed = 0;
  for (const SweepRow& row : candidate.rows) {
    if (row.status == Outcome::incorrect || row.status == Outcome::cuda_error)
      throw InvalidInput(fmt::format("not accepted: {} is {}", row.name(), to_string(row.status)));
    if (row.status != Outcome::ok) continue;
    (void)candidate.samples_of(row);
    ++timed;
  }
  if (timed == 0) throw InvalidInput(fmt::format("{}: the run has no row that is ok", arguments.candidate));
  require_no_doubts(arguments, candidate, nullptr);
  replace_baseline(arguments.baseline, arguments.candidate);
  fmt::print("accepted: {} is new, with {} timed rows\n", arguments.baseline, timed);
  return kDone;
}

std::vector<RunFiles> read_runs(const std::vector<std::string>& folders) {
  std::vector<RunFiles> runs;
  for (const std::string& folder : folders) runs.push_back(read_run(folder));
  return runs;
}

// What the gate of this baseline, or of the recorded GPU, takes from then on.
int keep_spread(const GateArguments& arguments) {
  GateArguments alone;
  alone.baseline = arguments.baseline, alone.spread = arguments.spread;
  if (arguments != alone) throw InvalidInput("--spread goes with --baseline alone");
  const std::vector<RunFiles> runs = read_runs(arguments.spread);
  std::vector<const RunFiles*> all;
  for (const RunFiles& run : runs) all.push_back(&run);
  const Spread spread = measure_spread(all);
  if (spread.classes.empty())
    throw InvalidInput("--spread: the runs have too few rows in common to measure a spread; sweep more problems");
  if (const std::string device = read_run(arguments.baseline).environment.device; device != spread.device)
    throw InvalidInput(fmt::format("--spread: the runs are of '{}', the baseline {} of '{}'", spread.device,
                                   arguments.baseline, device));
  const auto file = std::filesystem::path(arguments.baseline) / kSpreadFile;
  write_atomically(file, to_json(spread));
  fmt::print("{}{}: from {} runs\n", spread_text(spread), file.string(), runs.size());
  return kDone;
}

int gate_runs(const GateArguments& arguments) {
  if (arguments.resources) {
    GateArguments alone;
    alone.baseline = arguments.baseline, alone.candidate = arguments.candidate, alone.resources = true;
    alone.accept = arguments.accept, alone.new_rows = arguments.new_rows;
    if (arguments != alone)
      throw InvalidInput("--resources goes with --baseline, --candidate, --new-rows and --accept alone");
    return gate_resources({arguments.baseline, arguments.candidate, arguments.accept, arguments.new_rows});
  }
  if (!arguments.spread.empty()) return keep_spread(arguments);
  if (arguments.candidate.empty()) throw InvalidInput("--candidate is required: the folder of the run to judge");
  if (arguments.force && !arguments.accept) throw InvalidInput("--force goes with --accept");
  if (arguments.accept && !arguments.filter.empty())
    throw InvalidInput("--accept takes the whole run: it goes without --filter");
  if (arguments.accept && !std::filesystem::exists(arguments.baseline)) return accept_first(arguments);
  OutputFiles outputs;
  outputs.add_input_run("--baseline", arguments.baseline);
  outputs.add_input_run("--candidate", arguments.candidate);
  for (const std::string& folder : arguments.noise) outputs.add_input_run("--noise", folder);
  outputs.add("--markdown", arguments.markdown);
  outputs.add("--junit", arguments.junit);
  outputs.add("--bencher", arguments.bencher);
  outputs.add("--benchmark-action", arguments.benchmark_action);
  const RunFiles baseline = read_run(arguments.baseline), candidate = read_run(arguments.candidate);
  const std::vector<RunFiles> noise = read_runs(arguments.noise);
  const GateOptions options{.pairs = {"", "", name_filter("--filter", arguments.filter)},
                            .new_rows = arguments.new_rows,
                            .strict = arguments.strict,
                            .launches = arguments.launches};
  const GateResult result = gate(baseline, candidate, noise, options);
  const ComparisonText text = text_of(result);
  if (!arguments.markdown.empty()) outputs.write("--markdown", markdown_text(text));
  if (!arguments.junit.empty()) outputs.write("--junit", junit_xml(result));
  if (!arguments.bencher.empty()) outputs.write("--bencher", bencher_json(result));
  if (!arguments.benchmark_action.empty()) outputs.write("--benchmark-action", benchmark_action_json(result));
  outputs.commit();
  fmt::print("{}", terminal_text(text));
  return arguments.accept ? accept(arguments, candidate, result) : result.exit_code();
}

int compare(const CompareArguments& arguments) {
  if (arguments.variant_a.empty() != arguments.variant_b.empty())
    throw InvalidInput("--variant-a and --variant-b go together");
  OutputFiles outputs;
  outputs.add_input_run("the run A", arguments.a);
  outputs.add_input_run("the run B", arguments.b);
  outputs.add("--markdown", arguments.markdown);
  const RunFiles a = read_run(arguments.a), b = read_run(arguments.b);
  const PairOptions options{arguments.variant_a, arguments.variant_b, name_filter("--filter", arguments.filter)};
  ComparisonText text;
  text.name_a = arguments.variant_a.empty() ? "A" : "A " + arguments.variant_a;
  text.name_b = arguments.variant_a.empty() ? "B" : "B " + arguments.variant_b;
  for (const RowPair& pair : pair_rows(a, b, options)) {
    const bool ok_a = pair.a != nullptr && pair.a->status == Outcome::ok;
    const bool ok_b = pair.b != nullptr && pair.b->status == Outcome::ok;
    if (ok_a && ok_b)
      text.changes.push_back(row_change(a, b, pair));
    else if (ok_a || ok_b)
      text.gaps.push_back({pair, GateGap::Weight::noted,
                           fmt::format("{} in A, {} in B", pair.a == nullptr ? "missing" : to_string(pair.a->status),
                                       pair.b == nullptr ? "missing" : to_string(pair.b->status))});
  }
  if (text.changes.empty())
    throw InvalidInput(fmt::format("{} and {} have no row that is ok in both", arguments.a, arguments.b));
  std::stable_sort(text.changes.begin(), text.changes.end(),
                   [](const RowChange& x, const RowChange& y) { return x.cold.change > y.cold.change; });
  text.totals = total_changes(a, b, options);
  text.differences = environment_differences(a, b);
  double log_sum = 0;
  for (const RowChange& change : text.changes) log_sum += std::log1p(change.cold.change);
  text.headline =
      fmt::format("A is {}, B is {}: {} rows in both, B takes {:.3f} times A's time (geometric mean)", arguments.a,
                  arguments.b, text.changes.size(), std::exp(log_sum / static_cast<double>(text.changes.size())));
  if (!arguments.markdown.empty()) outputs.write("--markdown", markdown_text(text));
  outputs.commit();
  fmt::print("{}", terminal_text(text));
  return kDone;
}

}  // namespace

void add_gate_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "gate", "Judge a run by a baseline: did anything become slower?", gate_runs);
  command
      .add_option("--baseline", arguments.baseline, "Folder of the run to judge by; with --resources its kernels.csv")
      ->required();
  command.add_option("--candidate", arguments.candidate,
                     "Folder of the run to judge; with --resources a program (default: this one)");
  command.add_option("--noise", arguments.noise, "Folder of another run of the baseline's build; may be repeated")
      ->take_all();
  command.add_option("--filter", arguments.filter,
                     "Only rows whose op/problem/dtype/variant matches this regular expression");
  command
      .add_option("--spread", arguments.spread,
                  "Measure how much these runs of one build differ, and keep it in the baseline's folder")
      ->take_all();
  command.add_flag("--strict", arguments.strict, "Fail on an ambiguous row that is slower by more than 5 %");
  command.add_flag("--launches", arguments.launches,
                   "Fail if a row of ours launches other kernels than before, or more or fewer");
  command.add_flag("--new-rows", arguments.new_rows, "Name rows that the baseline lacks, but judge without them");
  add_output_file(command, "--markdown", arguments.markdown, "Write the tables as GitHub-flavoured Markdown");
  add_output_file(command, "--junit", arguments.junit, "Write the verdicts as JUnit XML");
  add_output_file(command, "--bencher", arguments.bencher,
                  "Write the candidate's times in Bencher's metric format (JSON)");
  add_output_file(command, "--benchmark-action", arguments.benchmark_action,
                  "Write the times as github-action-benchmark's customSmallerIsBetter (JSON)");
  command.add_flag("--accept", arguments.accept, "Make the candidate the baseline, even if rows are slower");
  command.add_flag(
      "--force", arguments.force,
      "Let --accept take even a disturbed run (other programs, throttled rows), or one much faster than its baseline");
  command.add_flag("--resources", arguments.resources,
                   "Judge registers, shared memory and spills of every built kernel by a recorded kernels.csv; no GPU");
  command.footer(
      "A row regressed if its warm serial or cold median slowed by more than 1.5 % and twice the spread between "
      "processes\n(cold: also 0.5 us), a Mann-Whitney test over all rows and both phases gives p < 0.01, and SM cycles "
      "say the same.\nExit code: 0 nothing regressed, 1 a row regressed or broke, 2 the runs could not be compared "
      "(another device,\nmissing rows, a damaged file).");
}

void add_compare_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "compare", "Compare two runs (devices, commits, variants), without a verdict", compare);
  command.add_option("a", arguments.a, "Folder of a run")->required();
  command.add_option("b", arguments.b, "Folder of another, or the same one with --variant-a and --variant-b")
      ->required();
  command.add_option("--variant-a", arguments.variant_a, "Compare this variant of A ...");
  command.add_option("--variant-b", arguments.variant_b, "... with this variant of B, on the same problems");
  command.add_option("--filter", arguments.filter,
                     "Only rows whose op/problem/dtype/variant matches this regular expression");
  add_output_file(command, "--markdown", arguments.markdown, "Write the tables as GitHub-flavoured Markdown");
}

}  // namespace noisefloor
