// noisefloor sweep: the main job.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "bench/commands/add_command.h"
#include "bench/commands/output_files.h"
#include "bench/commands/roofline_files.h"
#include "bench/commands/sweep_arguments.h"
#include "bench/commands/sweep_folder.h"
#include "bench/measure/worker.h"
#include "bench/platform/build_info.h"
#include "bench/platform/nvml.h"
#include "bench/platform/openmp_waiting.h"
#include "bench/platform/run_queue.h"
#include "bench/sweep/all_devices.h"
#include "bench/sweep/benchmark_output.h"
#include "bench/sweep/command_line.h"
#include "bench/sweep/environment.h"
#include "bench/sweep/sweep.h"
#include "reports/run/load.h"
#include "reports/run/samples_file.h"
#include "reports/run/selected_cases.h"
#include "reports/run/unfinished.h"
#include "reports/totals/roofline.h"

namespace noisefloor {
namespace {

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
  int failed = sweep.failed_repetitions() + sweep.wrong_comparisons();
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
  auto devices = list_cuda_devices(why);
  std::erase_if(devices, [&](const CudaDevice& device) {  // an older GPU beside the others
    if (device.unserved.empty()) return false;
    why = device.unserved;
    fmt::print(stderr, "device {} is left out: {}\n", device.index, device.unserved);
    return true;
  });
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
  std::vector<Case> cases = asked_cases(arguments, flags, problems, plugins, description.is_host);
  const GpuMonitor monitor =
      description.is_host ? GpuMonitor::unavailable("host") : GpuMonitor::of_cuda_device(description.index);
  if (const auto processes = monitor.read().compute_processes; processes && *processes > 1 && !flags.list_tests)
    fmt::print(stderr, "warning: {} other processes have a context on this GPU; expect noise\n", *processes - 1);
  PyTorchSide pytorch;
  if (!flags.list_tests && !description.is_host) pytorch = start_pytorch_for(cases, arguments, description.index);
  const std::optional<ShardRecord> shard = take_shard(cases, arguments);
  if (flags.list_tests) {
    for (const Case& test_case : cases) fmt::print("{}\n", test_case.id().name());
    return kDone;
  }
  OutputFiles outputs;
  outputs.add("--benchmark_out", flags.out);

  const bool below_runs = !arguments.runs.empty();
  RunFolder folder(run_folder_of(arguments, below_runs && description.is_host ? "host" : description.name),
                   description.name, build_info().commit, arguments.fresh);
  if (folder.lost_rows() > 0)
    fmt::print(stderr, "{}: was cut; {} rows without their samples are measured again\n",
               (folder.path() / kSamplesFile).string(), folder.lost_rows());
  claim_shard(folder.path(), shard, !folder.rows().empty());
  auto facts = environment_facts(description, monitor);
  require_same_software(folder, facts);
  require_same_plugins(folder, plugins);
  for (const auto& [name, fingerprint] : plugins) facts[fact_of_plugin(name)] = fingerprint;
  warn_of_another_gpu(folder, description);
  if (pytorch.worker) {
    require_same_pytorch(folder, *pytorch.worker);
    for (const auto& [name, value] : pytorch.worker->facts()) facts[name] = value;
  }
  HostLoad load = load_at_start(description);
  if (description.is_host) facts.update(load.facts());
  if (below_runs) note_unfinished(folder.path(), command_text(invocation));  // behind all that refuses the folder
  folder.write_environment(facts, invocation.arguments);
  merge_network_problems(folder.path(), asked_network_problems(arguments, problems, description.is_host));
  merge_selected_cases(folder.path(), ids_of(cases));
  const auto log = [](const std::string& message) { fmt::print(stderr, "{}\n", message); };
  Ceilings ceilings =
      load_or_measure(description.is_host ? kHostDevice : description.index, false, build_info().commit, log);
  write_ceilings(folder.path() / "ceilings.csv", ceilings);

  RunnerOptions options;
  options.counters = parse_counter_mode(arguments.counters);
  options.worker = pytorch.worker.get();
  auto neighbour = neighbour_of(*platform);
  options.neighbour = neighbour.get();
  if (!pytorch.why_not.empty()) options.why_no_worker = pytorch.why_not;
  options.say = log;
  options.compare = !arguments.no_duels;
  const auto display = flags.format.empty() ? nullptr : GatheredReporter::display(flags.format);
  const auto file = flags.out.empty() ? nullptr : GatheredReporter::file(flags.out_format);
  CaseRunner runner(*platform, &ceilings, options);
  for (const auto& [id, row] : folder.rows()) runner.know(row);
  if (!runner.counter_message().empty()) fmt::print(stderr, "counters: {}\n", runner.counter_message());

  Sweep::Options sweep_options{arguments.budget, flags.repetitions, display || file};
  if (description.is_host)  // once: what is above it then stays
    sweep_options.before_writing = [&, raised = false](std::vector<CaseResult>& results) mutable {
      raised = raised || raise_beaten_roof(folder, results, ceilings, log);
    };
  Sweep session(runner, folder, sweep_options);
  session.register_cases(cases);
  if (session.already_done() > 0)
    fmt::print(stderr, "{} cases are already in {}\n", session.already_done(), folder.path().string());
  session.run(display.get(), file.get());
  pytorch.worker.reset();
  neighbour.reset();  // before this program may start again
  if (description.is_host) {
    load.at_end = load_of_others();
    folder.add_facts(load.facts());
  }
  if (session.device_lost()) start_again(invocation, folder.path());
  if (display) (outputs.take_stdout() ? std::cerr : std::cout) << display->text() << std::flush;
  const int code = finish(folder, session, cases, !display && !below_runs);
  if (file) outputs.write("--benchmark_out", file->text());
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
  add_sweep_options(command, arguments);
}

}  // namespace noisefloor
