#include "bench/sweep/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "baselines/baseline.h"
#include "bench/counters/range_profiler.h"
#include "bench/platform/build_info.h"
#include "bench/platform/console.h"
#include "bench/platform/process_limits.h"
#include "bench/platform/processors.h"
#include "bench/platform/refusal.h"
#include "reports/run/network_problems.h"
#include "reports/run/run_files.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor {
namespace {

[[noreturn]] void refuse(const RunFolder& folder, const std::string& name, const std::string& before,
                         const std::string& now) {
  throw refusal("{}: holds rows of {} {}, this is {}; give another --out, or --fresh", folder.path().string(), name,
                before, now);
}

// What other programs do on a host's cores.
nlohmann::ordered_json facts_of_host() {
  nlohmann::ordered_json facts = {{"openmp_waiting", openmp_waiting()}};
  const std::optional<double> load = load_of_others();
  if (load) facts["load_at_start"] = *load;
  if (load && *load >= kLoaded)
    say_line(fmt::format(
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
  if (std::none_of(rows.begin(), rows.end(), [](const auto& row) { return of_worker(row.second); })) return;
  for (const auto& [name, value] : worker.facts())
    if (const std::string before = folder.fact(name); !before.empty() && before != value)
      refuse(folder, name, before, value);
}

}  // namespace

nlohmann::ordered_json gpu_facts(const GpuDescription& gpu) {
  nlohmann::ordered_json facts = nlohmann::ordered_json::object();
  const auto add = [&](const char* name, const auto& value) {
    if (value) facts[name] = *value;
  };
  const auto add_mode = [&](const char* name, const std::optional<bool>& on) {
    if (on) facts[name] = *on ? "on" : "off";
  };
  add("power_limit_w", gpu.power_limit_w);
  add("power_limit_default_w", gpu.power_limit_default_w);
  add("sm_clock_max_mhz", gpu.sm_clock_max_mhz);
  add("memory_clock_max_mhz", gpu.memory_clock_max_mhz);
  add("sm_clock_application_mhz", gpu.sm_clock_application_mhz);
  add("memory_clock_application_mhz", gpu.memory_clock_application_mhz);
  add_mode("ecc", gpu.ecc);
  add_mode("mig", gpu.mig);
  if (gpu.pcie_generation && gpu.pcie_lanes)
    facts["pcie"] = fmt::format("generation {}, {} lanes", *gpu.pcie_generation, *gpu.pcie_lanes);
  return facts;
}

nlohmann::ordered_json environment_facts(const PlatformDescription& description, const GpuMonitor& monitor) {
  const BuildInfo& build = build_info();
  const std::string& driver = monitor.driver_version();
  nlohmann::ordered_json facts = {
      {"device", description.name},
      {"gpu_uuid", description.uuid},
      {"memory_bytes", description.memory_bytes},
      {"compute_capability", description.info.compute_capability},
      {"sm_count", description.info.sm_count},
      {"l2_bytes", description.info.l2_bytes},
      {"driver", driver.empty() ? description.driver : driver},
      {"cuda_driver", description.is_host ? "" : description.driver},
      {"cuda_runtime", description.is_host ? "" : description.runtime},
      {"cuda_toolkit", build.cuda_toolkit},
      {"cuda_architectures", build.cuda_architectures},
      {"compiler", build.compiler},
      {"host_arch", build.host_arch},
      {"build_type", build.build_type},
      {"version", build.version},
      {"commit", build.commit},
  };
  if (!description.is_host) {
    facts.update(gpu_facts(monitor.describe()));
    for (const auto& [name, version] : library_versions()) facts[name] = version;
    if (const std::string cupti = cupti_version(); !cupti.empty()) facts["cupti"] = cupti;
  }
  const Processors processors = describe_processors();
  facts["cpu"] = processors.model;
  facts["cpu_cores"] = processors.cores;
  if (!processors.governor.empty()) facts["cpu_governor"] = processors.governor;
  if (processors.load_average) facts["load_average"] = *processors.load_average;
  return facts;
}

SweepSession::SweepSession(const SweepPlan& plan, Platform& platform, std::unique_ptr<Worker> neighbour,
                           CodeWatch* code)
    : plan_(&plan),
      platform_(&platform),
      neighbour_(std::move(neighbour)),
      monitor_(platform.description().pci_bus_id),
      code_(code) {
  const auto& [request, flags, problems] = plan;
  const int index = platform.description().index;
  if (request.search_again) kept_searches()->search_again();
  plugins_ = add_plugins(request.plugins, is_host() ? "host" : std::to_string(index));
  cases_ = asked_cases(plan, plugins_, is_host());
  if (!flags.list_tests) {
    if (const auto processes = monitor_.read().compute_processes; processes && *processes > 1)
      say_line(fmt::format("warning: {} other processes have a context on this GPU; expect noise", *processes - 1));
    if (!is_host()) pytorch_ = start_pytorch_for(cases_, request, index);
  }
  shard_ = take_shard(cases_, request);
}

void SweepSession::open() {
  const SweepRequest& request = plan_->request;
  const PlatformDescription& description = platform_->description();
  auto facts = environment_facts(description, monitor_);
  if (!request.reuse.empty()) {  // before the folder is touched
    std::error_code error;
    if (!request.out.empty() && fs::equivalent(request.out, request.reuse, error))
      throw InvalidInput("--reuse and --out are one folder: the rows of a run are kept in another one");
    earlier_.emplace(request.reuse, facts);
    facts[kReusedFrom] = request.reuse;
  }
  folder_.emplace(run_folder_of(request, request.below_runs() && is_host() ? "host" : description.name),
                  description.name, build_info().commit, request.fresh);
  RunFolder& folder = *folder_;
  if (earlier_) facts[kCheckSeed] = earlier_->choose_checks(folder.path(), folder.fact(kCheckSeed));
  if (folder.lost_rows() > 0)
    say_line(fmt::format("{}: was cut; {} rows without their samples are measured again",
                         (folder.path() / kSamplesFile).string(), folder.lost_rows()));
  claim_shard(folder.path(), shard_, !folder.rows().empty());
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
  ceilings_ = load_or_measure(is_host() ? kHostDevice : description.index, false, build_info().commit, say_line);
  write_ceilings(folder.path() / "ceilings.csv", ceilings_);
}

}  // namespace noisefloor
