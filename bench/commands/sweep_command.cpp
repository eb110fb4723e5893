// noisefloor sweep: the main job.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "bench/commands/add_command.h"
#include "bench/commands/benchmark_flags.h"
#include "bench/commands/output_files.h"
#include "bench/commands/plugin_options.h"
#include "bench/commands/roofline_files.h"
#include "bench/commands/selection_options.h"
#include "bench/commands/sweep_folder.h"
#include "bench/platform/build_info.h"
#include "bench/platform/nvml.h"
#include "bench/platform/openmp_waiting.h"
#include "bench/platform/run_queue.h"
#include "bench/sweep/all_devices.h"
#include "bench/sweep/benchmark_output.h"
#include "bench/sweep/command_line.h"
#include "bench/sweep/environment.h"
#include "bench/sweep/pytorch.h"
#include "bench/sweep/sweep.h"
#include "reports/roofline.h"
#include "reports/run/files.h"
#include "reports/run/load.h"
#include "reports/run/selected_cases.h"
#include "reports/run/shard.h"
#include "reports/run/unfinished.h"

namespace noisefloor {
namespace {

struct SweepArguments {
  std::shared_ptr<Invocation> invocation;
  SelectionOptions cases;
  PluginOptions plugins;
  std::optional<std::string> shard;
  std::string device, out, runs, counters = "auto", pytorch = "auto";
  bool fresh = false, search_again = false, do_bench = false, no_duels = false;
  int max_autotune = 0;
  double budget = 0;
};

void initialize_benchmark(const Invocation& invocation, const BenchmarkFlags& flags) {
  static std::vector<std::string> texts;  // Google Benchmark keeps the pointer to the program's name
  texts = {invocation.arguments.front()};
  for (std::string& flag : flags_of_library(invocation.benchmark_arguments, flags)) texts.push_back(std::move(flag));
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  int count = static_cast<int>(pointers.size());
  benchmark::Initialize(&count, pointers.data());
  if (count > 1) throw InvalidInput(not_a_benchmark_flag(pointers[1]));
}

// After a kernel has destroyed the CUDA context nothing runs in this process any more: its row is written, so a new
// process goes on behind it.
[[noreturn]] void start_again(const Invocation& invocation, const std::filesystem::path& out) {
  fmt::print(stderr, "the kernel left the device unusable for this process; starting again behind it\n");
  (void)std::fflush(nullptr);
  std::vector<std::string> texts = command_line_to_go_on(invocation.arguments, out);
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  execv("/proc/self/exe", pointers.data());
  throw std::runtime_error("the program could not be started again; run the same command with --out " + out.string());
}

// What --runs resumes by: the build and the command line, but for what only says which folder.
std::string command_text(const Invocation& invocation) {
  std::vector<std::string> words = without_options(invocation.arguments, {"--out", "--runs"}, {"--fresh"});
  words.front() = build_info().commit;
  return nlohmann::json(words).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::filesystem::path run_folder_of(const SweepArguments& arguments, const std::string& device) {
  if (!arguments.out.empty()) return arguments.out;
  if (arguments.runs.empty()) return default_run_folder(device);
  const std::filesystem::path runs = arguments.runs;
  if (!arguments.fresh)
    if (const auto begun = unfinished_run(runs / device_slug(device), command_text(*arguments.invocation))) {
      fmt::print(stderr, "resuming {} (--fresh begins another)\n", begun->string());
      return *begun;
    }
  return default_run_folder(device, runs);
}

int finish(const RunFolder& folder, const Sweep& sweep, const std::vector<Case>& cases, bool own_display) {
  std::vector<SweepRow> rows;  // of this sweep's cases, in its order
  int failed = sweep.failed_repetitions() + sweep.failed_duels();
  for (const Case& test_case : cases) {
    const auto found = folder.rows().find(test_case.id());
    if (found == folder.rows().end()) continue;
    rows.push_back(found->second);
    if (is_failure(found->second)) ++failed;
  }
  if (own_display) {
    fmt::print("{}", row_table(rows));
    fmt::print("\n{}", totals_table(network_totals(rows, read_network_problems(folder.path(), rows))));
    fmt::print("\nrun folder: {}\n", folder.path().string());
  }
  if (sweep.left_by_budget() > 0)
    fmt::print(stderr, "{} cases left by --budget; the same command with --out {} resumes\n", sweep.left_by_budget(),
               folder.path().string());
  if (failed > 0) {
    fmt::print(stderr, "{} cases of ours are incorrect or failed on the device\n", failed);
    return kNotSo;
  }
  return kDone;
}

// Every problem of the chosen networks, also of ops that this sweep leaves out. Totals are of one dtype: what a network
// has in another whatever its own (the casts at its ends) is in plans, not in totals.
std::vector<NetworkProblem> network_problems(const std::vector<ProblemEntry>& problems, const Selection& selection) {
  std::vector<NetworkProblem> all;
  for (const ProblemEntry& entry : problems_of_networks(problems, selection))
    for (const auto& use : entry.uses)
      if (!use.dtype) all.push_back({use.network, entry.op->name, entry.text, use.count, use.set});
  return all;
}

// An op that was asked for and that no chosen network has would be left out without a word.
void require_ops_in_networks(const std::vector<ProblemEntry>& problems, const Selection& selection) {
  const auto chosen = problems_of_networks(problems, selection);
  for (const std::string& op : selection.ops)
    if (std::none_of(chosen.begin(), chosen.end(), [&](const auto& entry) { return entry.op->name == op; }))
      throw InvalidInput(
          fmt::format("--ops: the chosen networks have no {} (noisefloor list problems --ops {})", op, op));
}

std::vector<CaseId> ids_of(const std::vector<Case>& cases) {
  std::vector<CaseId> ids;
  for (const Case& one : cases) ids.push_back(one.id());
  return ids;
}

bool in_worker(const Case& test_case) {
  return test_case.implementation->in_worker;
}

struct PyTorchSide {
  std::unique_ptr<Worker> worker;  // null where no case wants it, or it cannot be had
  std::string why_not;
};

// Starts it where there are cases of its. Where it cannot be had they are left out; in a part of a split sweep, whose
// parts must have the same cases, they stay and say why.
PyTorchSide start_pytorch_for(std::vector<Case>& cases, const SweepArguments& arguments, int device) {
  PyTorchSide side;
  if (std::none_of(cases.begin(), cases.end(), in_worker)) return side;
  try {
    const bool max_autotune = std::any_of(cases.begin(), cases.end(),
                                          [](const Case& one) { return one.implementation->name == kMaxAutotune; });
    side.worker = start_pytorch({device, max_autotune});
  } catch (const LibraryMissing& error) {
    side.why_not = error.what();
    const bool nothing_else = std::all_of(cases.begin(), cases.end(), in_worker);
    if (nothing_else || arguments.pytorch == "require") throw InvalidInput(side.why_not);
    fmt::print(stderr, "no rows of PyTorch (NOISEFLOOR_PYTHON names a Python that has it): {}\n", side.why_not);
    if (!arguments.shard) std::erase_if(cases, in_worker);
  }
  return side;
}

// What other programs do on the host's cores, before the first case and behind the last; empty on a GPU.
struct HostLoad {
  std::optional<double> at_start, at_end;
  nlohmann::ordered_json facts() const {
    nlohmann::ordered_json all = {{"openmp_waiting", openmp_waiting()}};
    if (at_start) all["load_at_start"] = *at_start;
    if (at_end) all["load_at_end"] = *at_end;
    return all;
  }
};

HostLoad load_at_start(const PlatformDescription& description) {
  HostLoad load;
  if (!description.is_host) return load;
  load.at_start = load_of_others();
  if (load.at_start && *load.at_start >= kLoaded)
    fmt::print(stderr,
               "warning: other programs have {:.1f} threads to run on the machine's cores; samples that have to wait "
               "for one are taken again, and a case with too few others is 'throttled'\n",
               *load.at_start);
  return load;
}

// The others of a machine's GPUs wrote theirs; what this one's process had before it ended gets its tables too.
void write_tables_of_the_unfinished(const std::filesystem::path& run) {
  if (!is_unfinished(run) || !std::filesystem::exists(run / "sweep.csv")) return;
  try {
    write_roofline_files(run);
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
}

int sweep_all(const SweepArguments& arguments, const BenchmarkFlags& flags) {
  if (!flags.format.empty() || !flags.out.empty())
    throw InvalidInput(
        "--device all: every GPU has a process of its own, which would write the same --benchmark_format or "
        "--benchmark_out; leave these out, or sweep one --device at a time");
  std::string why;
  const auto devices = list_cuda_devices(why);
  if (devices.empty()) throw InvalidInput(fmt::format("--device all: {}", why));
  const std::filesystem::path out = run_folder_of(arguments, "all GPUs");
  const bool below_runs = !arguments.runs.empty();
  const int code = sweep_all_devices(devices, arguments.invocation->arguments, out, [&] {
    if (below_runs) note_unfinished(out, command_text(*arguments.invocation));
  });
  if (!below_runs) return code;
  for (const DeviceLane& lane : device_lanes(devices, {}, out)) write_tables_of_the_unfinished(out / lane.folder);
  if (code <= kNotSo) note_finished(out);
  return code;
}

int sweep(const SweepArguments& arguments) {
  const Invocation& invocation = *arguments.invocation;
  if (arguments.shard) (void)parse_shard(*arguments.shard);
  if (arguments.search_again) kept_searches()->search_again();
  const auto problems = arguments.cases.load();
  const BenchmarkFlags flags = parse_benchmark_flags(invocation.benchmark_arguments);
  initialize_benchmark(invocation, flags);
  // The cases of all GPUs have the same names: those of the first are listed.
  if (arguments.device == "all" && !flags.list_tests) return sweep_all(arguments, flags);
  const auto platform = open_platform(arguments.device == "all" ? "0" : arguments.device);
  const PlatformDescription& description = platform->description();
  PluginOptions plugin_options = arguments.plugins;
  plugin_options.device = description.is_host ? "host" : std::to_string(description.index);
  const PluginFiles plugins = add_plugins(plugin_options);
  Selection selection = arguments.cases.selection(problems, description.is_host);
  selection.max_autotune = arguments.max_autotune;
  if (arguments.max_autotune > 0 && (description.is_host || arguments.pytorch == "off"))
    throw InvalidInput("--max-autotune: PyTorch's rows need a CUDA device, and --pytorch auto or require");
  auto cases = select_cases(problems, selection, description.is_host);
  require_ops_in_networks(problems, selection);
  if (cases.empty())
    throw InvalidInput("no case matches; see noisefloor list problems, --ops, --networks, --variants and --kinds");

  std::erase_if(cases, [&](const Case& test_case) { return !flags.matches(test_case.id().name()); });
  if (cases.empty()) throw InvalidInput("no case matches --benchmark_filter=" + flags.filter);
  fmt::print(stderr, "{}", plugins_without_rows(plugins, cases, description.is_host));
  if (arguments.pytorch == "require" && description.is_host && !flags.list_tests)
    throw InvalidInput("--pytorch require: PyTorch's rows need a CUDA device");
  if (arguments.pytorch == "off") std::erase_if(cases, in_worker);
  if (cases.empty()) throw InvalidInput("--pytorch off: all the chosen cases are PyTorch's");
  const GpuMonitor monitor =
      description.is_host ? GpuMonitor::unavailable("host") : GpuMonitor::of_cuda_device(description.index);
  if (const auto processes = monitor.read().compute_processes; processes && *processes > 1 && !flags.list_tests)
    fmt::print(stderr, "warning: {} other processes have a context on this GPU; expect noise\n", *processes - 1);
  PyTorchSide pytorch;
  if (!flags.list_tests && !description.is_host) pytorch = start_pytorch_for(cases, arguments, description.index);
  std::optional<ShardRecord> shard;
  if (arguments.shard) {
    shard = make_shard_record(parse_shard(*arguments.shard), ids_of(cases));
    const std::set<CaseId> own(shard->cases.begin(), shard->cases.end());
    std::erase_if(cases, [&](const Case& one) { return !own.contains(one.id()); });  // maybe all of few problems
  }
  if (flags.list_tests) {
    for (const Case& test_case : cases) fmt::print("{}\n", test_case.id().name());
    return kDone;
  }
  OutputFiles outputs;
  outputs.add("--benchmark_out", flags.out);

  const bool below_runs = !arguments.runs.empty();
  RunFolder folder(run_folder_of(arguments, below_runs && description.is_host ? "host" : description.name),
                   description.name, build_info().commit, arguments.fresh);
  claim_shard(folder.path(), shard, !folder.rows().empty());
  auto facts = environment_facts(description, monitor);
  require_same_software(folder, facts);
  require_same_plugins(folder, plugins);
  for (const auto& [name, fingerprint] : plugins) facts[fact_of_plugin(name)] = fingerprint;
  drop_half_done(folder, ids_of(cases), description);
  if (pytorch.worker) {
    require_same_pytorch(folder, *pytorch.worker);
    for (const auto& [name, value] : pytorch.worker->facts()) facts[name] = value;
  }
  HostLoad load = load_at_start(description);
  if (description.is_host) facts.update(load.facts());
  if (below_runs) note_unfinished(folder.path(), command_text(invocation));  // behind all that refuses the folder
  folder.write_environment(facts, invocation.arguments);
  merge_network_problems(folder.path(), network_problems(problems, selection));
  merge_selected_cases(folder.path(), ids_of(cases));
  const auto log = [](const std::string& message) { fmt::print(stderr, "{}\n", message); };
  const Ceilings ceilings =
      load_or_measure(description.is_host ? kHostDevice : description.index, false, build_info().commit, log);
  write_ceilings(folder.path() / "ceilings.csv", ceilings);

  RunnerOptions options;
  options.counters = parse_counter_mode(arguments.counters);
  options.worker = pytorch.worker.get();
  if (!pytorch.why_not.empty()) options.why_no_worker = pytorch.why_not;
  options.do_bench = arguments.do_bench;
  CaseRunner runner(*platform, &ceilings, options);
  for (const auto& [id, row] : folder.rows()) runner.know(row);
  if (!runner.counter_message().empty()) fmt::print(stderr, "counters: {}\n", runner.counter_message());

  const auto display = flags.format.empty() ? nullptr : GatheredReporter::display(flags.format);
  const auto file = flags.out.empty() ? nullptr : GatheredReporter::file(flags.out_format);
  Sweep session(runner, folder, {arguments.budget, flags.repetitions, !arguments.no_duels, display || file});
  session.register_cases(cases);
  if (session.already_done() > 0)
    fmt::print(stderr, "{} cases are already in {}\n", session.already_done(), folder.path().string());
  session.run(display.get(), file.get());
  pytorch.worker.reset();
  if (description.is_host) {
    load.at_end = load_of_others();
    folder.add_facts(load.facts());
    raise_beaten_roof(folder, ceilings, log);
  }
  if (session.device_lost()) start_again(invocation, folder.path());
  if (display) std::cout << display->text() << std::flush;
  const int code = finish(folder, session, cases, !display && !below_runs);
  if (file) write_atomically(outputs.partial("--benchmark_out"), file->text());
  outputs.commit();
  if (!below_runs) return code;
  note_finished(folder.path());
  if (!display && !folder.rows().empty()) write_roofline_files(folder.path());
  fmt::print(stderr, "all files of the run are in {}\n", folder.path().string());
  return code;
}

}  // namespace

void add_sweep_command(CLI::App& app, CommandResult result, std::shared_ptr<Invocation> invocation) {
  auto [command, arguments] = add_command(
      app, result, "sweep", "Verify and time variants and baselines over the problems of real networks", sweep);
  arguments.invocation = invocation;
  arguments.cases.add_to(command, "all that the device runs");
  add_plugin_options(command, arguments.plugins);
  command.add_option(
      "--device", arguments.device,
      "CUDA device number, 'host', or 'all': every GPU side by side, each in a folder of its own (default: 0 "
      "where there is one)");
  command.add_option("--out", arguments.out, "Run folder; one that exists is resumed (default: runs/<device>/<time>)");
  command
      .add_option("--runs", arguments.runs,
                  "As scripts/sweep: where the newest run below RUNS/<device> is of the same command and was cut "
                  "short, resume it, else begin another; at the end do as noisefloor roofline does")
      ->take_last();  // scripts give theirs first
  command.add_option(
      "--shard", arguments.shard,
      "Only part I/N of the problems, every N-th with all of its cases; noisefloor merge makes one run of all "
      "parts");
  command.add_flag("--fresh", arguments.fresh, "Start the run folder again");
  command.add_flag("--search-again", arguments.search_again,
                   "Search anew for the libraries' fastest algorithms, also where earlier searches are cached");
  command
      .add_option("--budget", arguments.budget,
                  "Stop starting cases, and leave a library's search, after this many seconds")
      ->check(CLI::PositiveNumber)
      ->check(why_not_finite);
  command.add_option("--counters", arguments.counters, "Hardware counters: off, auto or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  command
      .add_option("--pytorch", arguments.pytorch,
                  "PyTorch's rows: off, auto (where a Python here has one that sees the GPU) or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  command
      .add_option("--max-autotune", arguments.max_autotune,
                  fmt::format("Of each network the N costliest problems (count times cost) also as {}, at 10 to 20 s "
                              "a row; --variants names it for all",
                              kMaxAutotune))
      ->check(CLI::Range(1, 1000));
  command.add_flag("--no-duels", arguments.no_duels,
                   "Without duels: the best of ours and the best baseline of each problem in turns");
  command.add_flag("--do-bench", arguments.do_bench,
                   "Also write crosscheck.csv: the cold time of PyTorch's rows beside triton.testing.do_bench's");
  command.footer(
      "Google Benchmark's flags work too: --benchmark_filter=RE, --benchmark_list_tests, --benchmark_format=json,\n"
      "--benchmark_out=FILE (written whole at the end).\n"
      "Exit code: 0 all of ours correct, 1 a case of ours is incorrect or failed, 2 could not sweep. What a library "
      "gets\n"
      "wrong is a row.");
}

}  // namespace noisefloor
