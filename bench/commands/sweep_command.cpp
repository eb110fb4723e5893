// noisefloor sweep: the main job.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/counters/launch_signature.h"
#include "bench/platform/child_process.h"
#include "bench/platform/console.h"
#include "bench/sweep/fan_out.h"
#include "bench/sweep/google_benchmark.h"
#include "bench/sweep/session.h"
#include "bench/sweep/workers.h"
#include "reports/gate/gate.h"
#include "reports/run/run_folder.h"
#include "reports/run/sweep_csv.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

// After a kernel has destroyed the CUDA context nothing runs in this process any more: its row is written, so a new
// process goes on behind it.
[[noreturn]] void start_again(const std::vector<std::string>& command_line, const fs::path& out) {
  fmt::print(stderr, "the kernel left the device unusable for this process; starting again behind it\n");
  (void)std::fflush(nullptr);
  std::vector<std::string> texts = without_options(command_line, {"--out"}, {"--fresh"});
  texts.insert(texts.end(), {"--out", out.string()});
  execv("/proc/self/exe", pointers_to(texts).data());
  throw std::runtime_error("the program could not be started again; run the same command with --out " + out.string());
}

int finish(const RunFolder& folder, const SweepOutcome& sweep, const std::vector<Case>& cases, bool own_display) {
  std::vector<SweepRow> rows;  // of this sweep's cases, in its order
  int failed = sweep.failed;
  for (const Case& test_case : cases) {
    const auto found = folder.rows().find(test_case.id());
    if (found == folder.rows().end()) continue;
    rows.push_back(found->second);
    if (is_failure(found->second)) ++failed;
  }
  if (own_display) {
    const bool networks = std::ranges::any_of(cases, [](const Case& one) { return one.entry->whole_networks; });
    const RunFiles run = networks ? read_run(folder.path(), RunEnd::may_lack) : RunFiles{};  // what they launched
    const auto totals = network_totals(rows, read_network_problems(folder.path(), rows), run.samples);
    fmt::print("{}\n{}", row_table(rows), totals_table(totals));
    fmt::print("\nrun folder: {}\n", folder.path().string());
  }
  if (sweep.left_by_budget > 0)
    fmt::print(stderr, "{} cases left by --budget; the same command with --out {} resumes\n", sweep.left_by_budget,
               folder.path().string());
  if (failed > 0) {
    fmt::print(stderr, "{} cases of ours are incorrect or failed on the device\n", failed);
    return kNotSo;
  }
  return kDone;
}

// Rows that were timed again, though they could be kept, must be what they were. The folder remembers those that are
// not.
void judge_checks(const EarlierRun& earlier, RunFolder& folder) {
  const auto [kept, before, now] = earlier.result(folder.path());
  fmt::print(stderr, "{} rows are kept of {}; {} that could be were measured again\n", kept, folder.fact(kReusedFrom),
             now.rows.size());
  if (now.rows.empty()) return;
  std::vector<std::string> doubted;
  for (const GateRow& row : gate(before, now, {}).rows) {
    if (row.verdict != GateVerdict::regressed && row.verdict != GateVerdict::improved) continue;
    doubted.push_back(fmt::format("{} {:+.1f} %", row.change.rows.named().name(), 100 * row.slowdown()));
  }
  if (!doubted.empty()) folder.add_facts({{kDoubted, fmt::format("{}", fmt::join(doubted, "; "))}});
}

int sweep(const SweepRequest& request) {
  const SweepPlan plan = plan_sweep(request);
  const BenchmarkFlags& flags = plan.flags;
  initialize_library(request.command_line.front(), request.benchmark_arguments, flags);
  // The cases of all GPUs have the same names: those of the first are listed.
  if (request.device == "all" && !flags.list_tests) return sweep_all_devices(plan, write_roofline_files);
  const auto watch =
      request.device == "host" || flags.list_tests ? nullptr : watch_code_if_possible([&](const std::string& why) {
        if (!request.reuse.empty()) say_line(fmt::format("--reuse: rows of kernels are all measured: {}", why));
      });
  const auto platform = open_platform(request.device == "all" ? "0" : request.device);
  SweepSession session(plan, *platform, neighbour_of(*platform), watch.get());
  if (flags.list_tests) {
    for (const Case& test_case : session.cases()) fmt::print("{}\n", test_case.id().name());
    return kDone;
  }
  OutputFiles outputs;
  outputs.add_input("--out", request.out);
  outputs.add_input_run("a file of --reuse", request.reuse);
  outputs.add_input_run("a file of --out", request.out);
  outputs.add("--benchmark_out", flags.out);
  session.open();
  std::optional<GatheredReporter> display, file;
  if (!flags.format.empty()) display.emplace(flags.format, true);
  if (!flags.out.empty()) file.emplace(flags.out_format, false);
  const SweepOutcome outcome = session.run(display ? &*display : nullptr, file ? &*file : nullptr);
  RunFolder& folder = session.folder();
  if (outcome.device_lost) start_again(request.command_line, folder.path());
  if (display) (outputs.take_stdout() ? std::cerr : std::cout) << display->text() << std::flush;
  int code = finish(folder, outcome, session.cases(), !display && !request.below_runs());
  if (session.earlier() != nullptr) judge_checks(*session.earlier(), folder);
  if (const std::string doubted = folder.fact(kDoubted); !doubted.empty()) {
    fmt::print(stderr,
               "rows that were kept may not be true: of the same code, and of another time: {}; --fresh measures all\n",
               doubted);
    code = kNotSo;
  }
  if (file) outputs.write("--benchmark_out", file->text());
  outputs.commit();
  if (!request.below_runs()) return code;
  note_finished(folder.path());
  if (!display && !folder.rows().empty()) write_roofline_files(folder.path());
  fmt::print(stderr, "all files of the run are in {}\n", folder.path().string());
  return code;
}

void add_sweep_options(CLI::App& command, SweepRequest& request) {
  add_selection_options(command, request.cases, "all that the device runs");
  add_plugin_option(command, request.plugins);
  command.add_option("--device", request.device,
                     "CUDA device number, 'host', or 'all': every GPU at the same time, each into its own folder "
                     "(default: GPU 0, else the host)");
  command.add_option("--out", request.out, "Run folder; an existing one is resumed (default: runs/<device>/<time>)");
  command
      .add_option("--runs", request.runs,
                  "As scripts/sweep: resume the newest run below RUNS/<device> if it is of the same command and was "
                  "cut short, else begin another; at the end, do what noisefloor roofline does")
      ->take_last();  // scripts give theirs first
  command.add_option(
      "--shard", request.shard,
      "Sweep only shard I/N: every N-th problem, with all its cases; noisefloor merge makes one run of all shards");
  command.add_option("--reuse", request.reuse,
                     "Keep the rows of this run that run the same code on the same kind of device; one in twenty is "
                     "measured again as a check");
  command.add_flag("--fresh", request.fresh, "Begin again, do not resume");
  command.add_flag("--search-again", request.search_again,
                   "Search again for the libraries' fastest algorithms, without those of cached searches");
  add_budget_option(command, request.budget, "After this many seconds start no more problems");
  add_counters_option(command, request.counters);
  add_keyed_option(
      command, "--pytorch", "PyTorch's rows",
      {{"", "off, auto (the default: if a Python here has a PyTorch that sees the GPU) or require",
        [&](const std::string& when) {
          if (when != "off" && when != "auto" && when != "require") throw InvalidInput("is none of off, auto, require");
          request.pytorch = when;
        }},
       {"max_autotune",
        fmt::format("also measure {} on each network's so many costliest problems (count times cost), 10 to 20 s a "
                    "row; name it in --variants for all",
                    kMaxAutotune),
        [&](const std::string& text) {
          const std::int64_t count = require_integer("max_autotune", text);
          if (count < 1 || count > 1000) throw InvalidInput("the range is 1 to 1000");
          request.cases.max_autotune = static_cast<int>(count);
        }}});
  command.add_flag("--no-pairs", request.no_pairs,
                   "Skip paired comparisons: our best beside the best baseline of each problem, in turns");
  command.footer(
      "Google Benchmark's flags work too: --benchmark_filter=RE, --benchmark_list_tests, --benchmark_format=json,\n"
      "--benchmark_out=OUTFILE (written whole at the end).\n"
      "Exit code: 0 all cases of ours are correct, 1 one is incorrect or failed, 2 could not sweep. What a library "
      "gets\n"
      "wrong is in its row, and does not count.");
}

}  // namespace

void add_sweep_command(CLI::App& app, CommandResult result) {
  auto [command, request] = add_command(
      app, result, "sweep", "Verify and time variants and baselines over the problems of real networks", sweep);
  request.command_line = result->arguments;
  request.benchmark_arguments = result->benchmark_arguments;
  add_sweep_options(command, request);
}

}  // namespace noisefloor
