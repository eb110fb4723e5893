// The commands of the program. Each adds its own subcommand; the chosen one runs after parsing and returns the exit
// code: 0 done, 1 the thing checked is not so (incorrect, an error on the device), 2 could not do what was asked.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/suite.h"
#include "bench/platform/platform.h"
#include "bench/platform/refusal.h"
#include "kernels/core/listed.h"
#include "kernels/core/op.h"
#include "reports/run/ceilings_csv.h"
#include "reports/run/run_files.h"

namespace noisefloor {

class Worker;
struct Selection;

struct Invocation {
  std::vector<std::string> arguments;            // argv, for env.json and for starting again
  std::vector<std::string> benchmark_arguments;  // --benchmark_*: Google Benchmark's
  std::function<int()> chosen = {};              // set by the subcommand that was named
};
using CommandResult = std::shared_ptr<Invocation>;

constexpr int kDone = 0;
constexpr int kNotSo = 1;
constexpr int kCouldNot = 2;
constexpr int kInterrupted = 128;  // and the number of the signal, as shells have it

// A subcommand and its arguments, which `run` gets when the command line has been read. Where it has subcommands of its
// own, and one was given, that one runs.
template <class Arguments>
std::pair<CLI::App&, Arguments&> add_command(CLI::App& app, const CommandResult& result, const std::string& name,
                                             const std::string& about, int (*run)(const Arguments&)) {
  CLI::App* const command = app.add_subcommand(name, about);
  const auto arguments = std::make_shared<Arguments>();
  command->callback([=] {
    if (command->get_subcommands().empty()) result->chosen = [=] { return run(*arguments); };
  });
  return {*command, *arguments};
}

// A part of an option's value, between commas: "name=value". `take` gets the value, or throws InvalidInput that says
// what it must be; the option and the part are named then. Of an option without values it gets its name; that of ""
// takes a word without a name. The option may be repeated.
struct OptionKey {
  const char* name;
  std::string about;
  std::function<void(const std::string& value)> take;
};
void add_keyed_option(CLI::App& command, const std::string& option, const std::string& about,
                      std::vector<OptionKey> keys, bool values = true);

void add_device_option(CLI::App& command, std::string& device);  // of open_platform
void add_problems_option(CLI::App& command, std::string& folder);
void add_counters_option(CLI::App& command, std::string& mode);
void add_budget_option(CLI::App& command, double& seconds, const char* about);
// `default_kinds`: what the help says of --kinds.
void add_selection_options(CLI::App& command, Selection& selection, const char* default_kinds);
void add_plugin_option(CLI::App& command, std::vector<std::string>& files);

// "host", a device number, or "" for device 0 where there is one and the host otherwise (said on stderr). For the host
// the program may start again (process_limits.h): nothing is opened or written before. Throws InvalidInput or
// DeviceError.
std::unique_ptr<Platform> open_platform(const std::string& device);
// RunnerOptions::neighbour: this program once more, started when it is asked. None for the host.
std::unique_ptr<Worker> neighbour_of(const Platform& platform);

const SuiteEntry& require_op(const std::string& name);                   // throws InvalidInput with "did you mean"
DType require_dtype(const Workload& workload, const std::string& name);  // likewise
ImplementationPtr require_implementation(const SuiteEntry& entry, const std::string& name);  // likewise
// "a [m, k]: in, of the row's type", with its meaning, and where not every problem has it, when one does.
std::string description_of(const TensorRule& tensor);
// What the shapes of an op's tensors call by a name of their own, each with its formula.
std::vector<std::pair<std::string, std::string>> symbols_of(const Workload& op);
std::int64_t require_integer(const char* option, const std::string& text);  // throws InvalidInput
std::uint64_t require_seed(const std::string& text);                        // of --seed; throws InvalidInput
// roofline.csv, totals.csv, plan.csv and report.html of a run; prints its tables. Throws InvalidInput where it has no
// rows.
void write_roofline_files(const fs::path& run);
// The newest run folder below runs/, where a sweep puts them; empty where there is none.
fs::path newest_run();
// A run, finished or not, with its ceilings where it has them, and rows completed by them. Throws as read_run() does.
RunFiles read_completed_run(const fs::path& folder, CeilingTable& ceilings);
std::string why_not_finite(const std::string& text);  // for CLI::Option::check(); ranges let nan through

}  // namespace noisefloor
