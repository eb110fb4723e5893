#include "bench/sweep/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/platform/build_info.h"
#include "bench/platform/process_limits.h"
#include "bench/platform/run_queue.h"
#include "bench/sweep/environment.h"
#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"
#include "reports/run/run_folder.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

void log(const std::string& message) {
  fmt::print(stderr, "{}\n", message);
}

[[noreturn]] void refuse(const RunFolder& folder, const std::string& name, const std::string& before,
                         const std::string& now) {
  throw InvalidInput(fmt::format("{}: holds rows of {} {}, this is {}; give another --out, or --fresh",
                                 folder.path().string(), name, before, now));
}

// What other programs do on a host's cores.
nlohmann::ordered_json facts_of_host() {
  nlohmann::ordered_json facts = {{"openmp_waiting", openmp_waiting()}};
  const std::optional<double> load = load_of_others();
  if (load) facts["load_at_start"] = *load;
  if (load && *load >= kLoaded)
    log(fmt::format(
        "warning: other programs have {:.1f} threads to run on the machine's cores; samples that have to wait "
        "for one are taken again, and a case with too few others is 'throttled'",
        *load));
  return facts;
}

// Rows that one folder has are compared: they are of one driver, and of one version of each library.
void require_same_software(const RunFolder& folder, const nlohmann::ordered_json& facts) {
  for (const char* name : {"driver", "cublaslt", "cudnn"})
    if (const std::string before = folder.fact(name), now = facts.value(name, "");
        !folder.rows().empty() && !before.empty() && !now.empty() && before != now)
      refuse(folder, name, before, now);
}

// Column gpu_uuid tells them apart.
void warn_of_another_gpu(const RunFolder& folder, const PlatformDescription& description) {
  const auto& rows = folder.rows();
  if (std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
        return !row.second.gpu_uuid.empty() && row.second.gpu_uuid != description.uuid;
      }))
    fmt::print(stderr, "warning: {} holds rows of another {}; column gpu_uuid tells them apart\n",
               folder.path().string(), description.name);
}

void require_same_pytorch(const RunFolder& folder, Worker& worker) {
  const auto& rows = folder.rows();
  if (std::none_of(rows.begin(), rows.end(), [](const auto& row) { return of_pytorch(row.second); })) return;
  for (const auto& [name, value] : worker.facts())
    if (const std::string before = folder.fact(name); !before.empty() && before != value)
      refuse(folder, name, before, value);
}

// A row above a host's roof says that the roof is too low, as where it was measured beside other programs: it is
// measured again, and kept in the folder. True where it was. What reads more than it writes may stay above a copy.
bool raise_beaten_roof(const RunFolder& folder, std::vector<CaseResult>& results, Ceilings& ceilings) {
  constexpr double kBeaten = 102;
  if (std::none_of(results.begin(), results.end(),
                   [](const CaseResult& one) { return one.row.pct_of_roof.value_or(0) > kBeaten; }))
    return false;
  log("a row is above the roof: the host's ceilings are measured once more");
  ceilings = raise_host_ceilings(ceilings, build_info().commit, log);
  for (CaseResult& one : results) (void)place_under_roof(one.row, ceilings);
  write_ceilings(folder.path() / "ceilings.csv", ceilings);
  return true;
}

}  // namespace

SweepSession::SweepSession(const SweepPlan& plan, Platform& platform, std::unique_ptr<Worker> neighbour)
    : plan_(&plan),
      platform_(&platform),
      neighbour_(std::move(neighbour)),
      monitor_(is_host() ? GpuMonitor::unavailable("host") : GpuMonitor::of_cuda_device(platform.description().index)) {
  const auto& [request, flags, problems] = plan;
  const int index = platform.description().index;
  if (request.search_again) kept_searches()->search_again();
  PluginOptions plugin_options = request.plugins;
  plugin_options.device = is_host() ? "host" : std::to_string(index);
  plugins_ = add_plugins(plugin_options);
  cases_ = asked_cases(plan, plugins_, is_host());
  if (!flags.list_tests) {
    if (const auto processes = monitor_.read().compute_processes; processes && *processes > 1)
      log(fmt::format("warning: {} other processes have a context on this GPU; expect noise", *processes - 1));
    if (!is_host()) pytorch_ = start_pytorch_for(cases_, request, index);
  }
  shard_ = take_shard(cases_, request);
}

void SweepSession::open() {
  const SweepRequest& request = plan_->request;
  const PlatformDescription& description = platform_->description();
  folder_.emplace(run_folder_of(request, request.below_runs() && is_host() ? "host" : description.name),
                  description.name, build_info().commit, request.fresh);
  RunFolder& folder = *folder_;
  if (folder.lost_rows() > 0)
    log(fmt::format("{}: was cut; {} rows without their samples are measured again",
                    (folder.path() / kSamplesFile).string(), folder.lost_rows()));
  claim_shard(folder.path(), shard_, !folder.rows().empty());
  auto facts = environment_facts(description, monitor_);
  require_same_software(folder, facts);
  require_same_plugins(folder, plugins_);
  for (const auto& [name, fingerprint] : plugins_) facts[fact_of_plugin(name)] = fingerprint;
  warn_of_another_gpu(folder, description);
  if (pytorch_.worker) {
    require_same_pytorch(folder, *pytorch_.worker);
    for (const auto& [name, value] : pytorch_.worker->facts()) facts[name] = value;
  }
  if (is_host()) facts.update(facts_of_host());
  if (request.below_runs())
    note_unfinished(folder.path(), command_text(request));  // behind all that refuses the folder
  const bool nothing_left =
      std::ranges::all_of(cases_, [&](const Case& one) { return folder.rows().contains(one.id()); });
  const std::string before = folder.fact("time_utc");
  folder.write_environment(facts, request.command_line);
  if (nothing_left && !before.empty()) folder.add_facts({{"time_utc", before}});
  merge_network_problems(folder.path(), asked_network_problems(*plan_, is_host()));
  merge_selected_cases(folder.path(), ids_of(cases_));
  ceilings_ = load_or_measure(is_host() ? kHostDevice : description.index, false, build_info().commit, log);
  write_ceilings(folder.path() / "ceilings.csv", ceilings_);
}

SweepOutcome SweepSession::run(benchmark::BenchmarkReporter* display, benchmark::BenchmarkReporter* file) {
  const auto& [request, flags, problems] = *plan_;
  RunnerOptions options;
  options.counters = parse_counter_mode(request.counters);
  options.worker = pytorch_.worker.get();
  options.neighbour = neighbour_.get();
  if (!pytorch_.why_not.empty()) options.why_no_worker = pytorch_.why_not;
  options.compare = !request.no_pairs;
  options.say = log;
  CaseRunner runner(*platform_, &ceilings_, options);
  for (const auto& [id, row] : folder_->rows()) runner.know(row);
  if (!runner.counter_message().empty()) log("counters: " + runner.counter_message());

  Sweep::Options sweep_options{request.budget, flags.repetitions, display != nullptr || file != nullptr};
  if (is_host())  // once: what is above it then stays
    sweep_options.before_writing = [this, raised = false](std::vector<CaseResult>& results) mutable {
      raised = raised || raise_beaten_roof(*folder_, results, ceilings_);
    };
  Sweep sweep(runner, *folder_, sweep_options);
  sweep.register_cases(cases_);
  if (sweep.already_done() > 0)
    log(fmt::format("{} cases are already in {}", sweep.already_done(), folder_->path().string()));
  sweep.run(display, file);
  pytorch_.worker.reset();
  neighbour_.reset();  // before this program may start again
  if (is_host())
    if (const auto load = load_of_others()) folder_->add_facts({{"load_at_end", *load}});
  return {sweep.device_lost(), sweep.left_by_budget(), sweep.failed_repetitions() + sweep.wrong_comparisons()};
}

}  // namespace noisefloor
