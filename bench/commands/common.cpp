#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <limits>

#include "bench/commands/commands.h"
#include "bench/measure/worker.h"
#include "bench/platform/process_limits.h"
#include "bench/sweep/selection.h"
#include "reports/explain/explain.h"
#include "reports/run/csv.h"
#include "reports/totals/totals.h"

namespace noisefloor {
namespace {

// Throws what an op has instead.
[[noreturn]] void refuse_name(const std::string& op, const char* what, const std::string& name,
                              const std::vector<std::string>& names) {
  throw refusal("op '{}' has no {} '{}'; it has {}{}", op, what, name, fmt::join(names, ", "),
                did_you_mean(name, names));
}

}  // namespace

void add_device_option(CLI::App& command, std::string& device) {
  command.add_option("--device", device, "CUDA device number, or 'host' (default: GPU 0, else the host)");
}

void add_problems_option(CLI::App& command, std::string& folder) {
  command.add_option("--problems", folder, "Folder of problem files, <op>.csv (default: bench/problems)");
}

void add_counters_option(CLI::App& command, std::string& mode) {
  command.add_option("--counters", mode, "Hardware counters: off, auto or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
}

void add_budget_option(CLI::App& command, double& seconds, const char* about) {
  command.add_option("--budget", seconds, about)->check(CLI::PositiveNumber)->check(why_not_finite);
}

void add_selection_options(CLI::App& command, Selection& selection, const char* default_kinds) {
  const auto add = [&](const char* option, std::vector<std::string>& names, const std::string& about) {
    return command.add_option_function<std::string>(
        option, [&names](const std::string& text) { names = split_list(text); }, about);
  };
  add("--ops", selection.ops, "Ops, comma-separated (default: all)");
  const auto take_networks = [&](const std::string& text) {
    for (const std::string& name : split_list(text))
      if (name.front() == '-')
        selection.without.push_back(name.substr(1));
      else
        selection.networks.push_back(name);
  };
  command.add_option_function<std::string>(
      "--networks", take_networks,
      fmt::format(
          "Networks, or sets of problems such as stream, comma-separated, or 'all' (sets of large problems go by "
          "name alone); -NAME leaves out the problems of that one (default: {})",
          default_networks_text()));
  add("--variants", selection.variants, "Variants or baselines by name (default: all)");
  add("--kinds", selection.kinds,
      fmt::format("host, naive, tiled, tensor_core, ptx, baseline, network (default: {})", default_kinds));
  add("--dtypes", selection.dtypes,
      "bf16, fp16, fp32; problems whose file names a dtype (column dtype: casts, preconditioning) are swept in that "
      "one")
      ->default_str("bf16");
  add_problems_option(command, selection.problems);
}

void add_plugin_option(CLI::App& command, std::vector<std::string>& files) {
  command
      .add_option("--plugin", files,
                  "Measure your own kernel as a row, in its own process: a shared library made with "
                  "noisefloor/plugin.h, or a Python file (docs/plugins.md); may be repeated")
      ->allow_extra_args(false);
}

std::unique_ptr<Platform> open_platform(const std::string& device) {
  std::string no_gpu;
  const bool host = device == "host" || (device.empty() && cuda_device_count(no_gpu) == 0);
  if (host) wait_briefly();  // before anything is printed
  if (const std::string why = why_fewer_threads(); !why.empty()) fmt::print(stderr, "note: {}\n", why);
  if (host && !no_gpu.empty())
    fmt::print(stderr, "{}: running the host variants on all cores\n", no_gpu.substr(0, no_gpu.find(';')));
  if (host) return make_host_platform();
  if (device.empty()) return make_cuda_platform(0);
  const auto index = parse_number<int>(device);
  if (!index) throw refusal("--device is '{}', not 'host' or a device number (noisefloor devices)", device);
  return make_cuda_platform(*index);
}

std::unique_ptr<Worker> neighbour_of(const Platform& platform) {
  if (platform.description().is_host) return nullptr;
  ChildCommand command{{"noisefloor", "worker", "--device", std::to_string(platform.description().index)}};
  command.program = "/proc/self/exe";
  return std::make_unique<Worker>("the process that is to use the GPU in turns", std::move(command));
}

const SuiteEntry& require_op(const std::string& name) {
  if (const SuiteEntry* entry = suite().find(name)) return *entry;
  std::vector<std::string> names;
  for (const SuiteEntry& entry : suite().entries()) names.push_back(entry.name());
  throw refusal("unknown op '{}'{} (noisefloor list ops)", name, did_you_mean(name, names));
}

DType require_dtype(const Workload& workload, const std::string& name) {
  std::vector<std::string> names;
  for (const DType dtype : workload.dtypes) {
    if (name == to_string(dtype)) return dtype;
    names.push_back(to_string(dtype));
  }
  refuse_name(workload.name, "dtype", name, names);
}

ImplementationPtr require_implementation(const SuiteEntry& entry, const std::string& name) {
  if (ImplementationPtr found = entry.find(name)) return found;
  std::vector<std::string> names;
  for (const ImplementationPtr& implementation : entry.implementations) names.push_back(implementation->name);
  refuse_name(entry.name(), "variant", name, names);
}

std::vector<std::pair<std::string, std::string>> symbols_of(const Workload& op) {
  std::vector<std::pair<std::string, std::string>> symbols;
  for (const Symbols::Symbol& one : op.table.symbols.all())
    if (one.formula != nullptr) symbols.emplace_back(one.name, one.formula);
  return symbols;
}

std::string description_of(const TensorRule& tensor) {
  constexpr const char* kRoles[] = {"in", "out", "in and out"};
  return fmt::format("{} [{}]: {}, {}{}{}{}{}", tensor.name, fmt::join(tensor.shape, ", "),
                     kRoles[static_cast<int>(tensor.role)],
                     tensor.dtype ? to_string(*tensor.dtype) : "of the row's type", *tensor.meaning != '\0' ? ": " : "",
                     tensor.meaning, tensor.condition == std::string_view("1") ? "" : "; where ",
                     tensor.condition == std::string_view("1") ? "" : tensor.condition);
}

fs::path newest_run() {
  fs::path newest;
  fs::file_time_type time;
  std::error_code error;
  for (const auto& device : fs::directory_iterator("runs", error))
    for (const auto& folder : fs::directory_iterator(device.path(), error)) {
      if (is_leftover(folder.path().filename().string())) continue;
      const auto written = fs::last_write_time(folder.path() / "sweep.csv", error);
      if (!error && (newest.empty() || written > time)) newest = folder.path(), time = written;
    }
  return newest;
}

RunFiles read_completed_run(const fs::path& folder, CeilingTable& ceilings) {
  RunFiles run = read_run(folder, RunEnd::may_lack);
  const auto file = folder / "ceilings.csv";
  if (fs::symlink_status(file).type() != fs::file_type::not_found) ceilings = read_ceilings(file);
  // A host is named by its cores in rows, and by its threads in ceilings.
  for (const SweepRow& row : run.rows)
    if (!on_host(row) && !ceilings.device.empty() && ceilings.device != row.device)
      throw refusal("{}: its ceilings are of '{}', the row is of '{}'", file.string(), ceilings.device, row.device);
  complete_rows(run.rows, ceilings);
  return run;
}

std::int64_t require_integer(const char* option, const std::string& text) {
  if (const auto value = parse_number<std::int64_t>(text)) return *value;
  throw refusal("{}: '{}' is not a whole number", option, text);
}

std::uint64_t require_seed(const std::string& text) {
  try {
    if (const std::int64_t seed = require_integer("--seed", text); seed >= 0) return static_cast<std::uint64_t>(seed);
  } catch (const InvalidInput&) {  // no number, or one that no 64 bits hold
  }
  throw refusal("--seed {}: the range is 0 to {}", text, std::numeric_limits<std::int64_t>::max());
}

std::string why_not_finite(const std::string& text) {
  double value = 0;
  const bool number = CLI::detail::lexical_cast(text, value);
  return number && std::isfinite(value) ? "" : fmt::format("'{}' is not a finite number", text);
}

}  // namespace noisefloor
