// noisefloor tune: times what an op's variants choose from, for the table that its room compiles in (tools/tune).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/measure/case_progress.h"
#include "bench/measure/case_result.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/tuner.h"
#include "bench/platform/build_info.h"
#include "bench/platform/console.h"
#include "bench/sweep/problem_files.h"
#include "reports/run/csv.h"

namespace noisefloor {
namespace {

struct TuneArguments {
  std::string op, variant, problems, networks = "all", dtype = "bf16", device = "0", out;
  double budget = std::numeric_limits<double>::infinity();
};

std::vector<ImplementationPtr> with_choices(const SuiteEntry& entry) {
  std::vector<ImplementationPtr> offering = entry.implementations;
  std::erase_if(offering,
                [](const ImplementationPtr& one) { return one->variant() == nullptr || !one->variant()->choices; });
  return offering;
}

// The named variant, or all of the op's that offer choices.
std::vector<ImplementationPtr> variants_to_tune(const SuiteEntry& entry, const std::string& variant) {
  std::vector<ImplementationPtr> offering = with_choices(entry);
  if (!variant.empty()) {
    const ImplementationPtr wanted = require_implementation(entry, variant);
    std::erase_if(offering, [&](const ImplementationPtr& one) { return one != wanted; });
  }
  if (!offering.empty()) return offering;
  std::string others;
  for (const SuiteEntry& other : suite().entries())
    for (const ImplementationPtr& one : with_choices(other))
      others += fmt::format("{}{} {}", others.empty() ? "" : ", ", other.name(), one->name);
  throw refusal("{}{}{} offers no choices to tune; these do: {}", entry.name(), variant.empty() ? "" : " ", variant,
                others);
}

// The op's problems in these networks' files, and those that other ops' variants make of theirs.
std::vector<Case> cases_to_tune(const SuiteEntry& entry, const TuneArguments& arguments,
                                const std::vector<ImplementationPtr>& variants) {
  const DType dtype = require_dtype(*entry.workload, arguments.dtype);
  const auto files = in_networks(load_problems(arguments.problems), split_list(arguments.networks));
  std::vector<Case> cases;
  const auto add = [&](const AnyProblem& problem, const std::string& text) {
    if (std::ranges::count(cases, text, &Case::text) > 0) return;
    for (const ImplementationPtr& variant : variants) cases.push_back({&entry, variant, problem, dtype, text});
  };
  for (const ProblemEntry& one : files)
    if (one.entry == &entry) add(one.problem, one.text);
  for (const ProblemEntry& one : files)
    if (const auto text = handed_to(entry, one, dtype)) add(entry.workload->parse(*text), *text);
  if (cases.empty()) throw refusal("these networks have no {}", entry.name());
  return cases;
}

// One line: the problem's best choice beside what is taken without it.
std::string outcome(const std::vector<TimedChoice>& best) {
  std::string text = fmt::format("best {:.2f} us by {}", best.front().warm_us(), best.front().choice.text);
  for (const TimedChoice& timed : best)
    if (timed.choice.estimated) text += fmt::format("; the estimate's {:.2f}", timed.warm_us());
  return text;
}

int tune(const TuneArguments& arguments) {
  const SuiteEntry& entry = require_op(arguments.op);
  const auto cases = cases_to_tune(entry, arguments, variants_to_tune(entry, arguments.variant));
  OutputFiles outputs;
  outputs.add("--out", arguments.out);
  const auto platform = open_platform(arguments.device);
  const PlatformDescription& device = platform->description();

  std::string csv = "device,sm_count,commit,problem,dtype,variant,choice,estimated,warm_us,cold_us\n";
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  std::size_t done = 0, tuned = 0, failed = 0;
  bool lost = false;
  for (const Case& one : cases) {
    if (lost || elapsed() > arguments.budget) break;
    const std::string name = fmt::format("{} {}", one.text, one.implementation->name);
    const auto row = refused(one, device, platform->arch_text());
    if (row && row->status != Outcome::unsupported_problem)
      throw refusal("{} {}: {}; this is {} ({})", entry.name(), one.implementation->name, row->reason, device.name,
                    device.is_host ? "the host" : platform->arch_text());
    const TunedCase result = row ? TunedCase{{}, row->reason} : tune_case(*platform, one, say_line);
    const std::vector<TimedChoice>& best = result.best;
    if (result.failed) ++failed;
    lost = result.lost;
    for (const TimedChoice& timed : best)
      csv += csv_row(device.name, device.info.sm_count, build_info().commit, one.text, to_string(one.dtype),
                     one.implementation->name, timed.choice.text, int{timed.choice.estimated},
                     fmt::format("{:.4f}", timed.warm_us()), fmt::format("{:.4f}", timed.cold_us()));
    if (!best.empty()) ++tuned;
    const std::size_t left = cases.size() - ++done;
    say_line(fmt::format("[{}/{}] {}  {}  ({} left)", done, cases.size(), name,
                         best.empty() ? result.why_not : outcome(best),
                         duration_text(elapsed() / static_cast<double>(done) * static_cast<double>(left))));
  }
  if (done < cases.size())
    say_line(fmt::format("{} cases left {}", cases.size() - done, lost ? "when the device was lost" : "by --budget"));
  if (failed > 0) say_line(fmt::format("{} cases failed and have no rows", failed));
  if (tuned == 0 && failed == 0 && done == cases.size())
    throw InvalidInput("no problem here has choices; nothing was timed");
  outputs.write("--out", csv);
  outputs.commit();
  return failed > 0 ? kNotSo : kDone;
}

}  // namespace

void add_tune_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "tune", "Time the choices of an op's variants, for the table that tools/tune writes", tune);
  command.add_option("op", arguments.op, "An op with a variant that offers choices")->required();
  add_output_file(command, "--out", arguments.out,
                  "CSV file to write: the best choices of each problem with their times")
      ->required();
  command.add_option("--variant", arguments.variant, "One variant (default: all that offer choices)");
  add_problems_option(command, arguments.problems);
  command.add_option("--networks", arguments.networks, "Networks whose problems are timed, comma-separated, or 'all'")
      ->capture_default_str();
  command.add_option("--dtype", arguments.dtype, "bf16, fp16 or fp32")->capture_default_str();
  command.add_option("--device", arguments.device, "CUDA device number, or 'host'")->capture_default_str();
  add_budget_option(command, arguments.budget, "After this many seconds start no more problems");
  command.footer("Exit code: 0 done, 1 a choice was wrong or failed: its problem has no rows, the others have.");
}

}  // namespace noisefloor
