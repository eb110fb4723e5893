// noisefloor ab: two builds in turns, case by case.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/platform/console.h"
#include "bench/sweep/alternate.h"
#include "bench/sweep/selection.h"
#include "reports/ab/build_pair_report.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

struct AbArguments {
  std::string old_build, new_build, device, filter, out, markdown;
  Selection cases;
  double resolve = 1, budget = std::numeric_limits<double>::infinity();
  bool strict = false, all = false;
};

// A program, or a folder with bin/noisefloor.
fs::path program_of(const std::string& build) {
  fs::path program = build;
  if (fs::is_directory(program)) program /= "bin/noisefloor";
  if (!fs::is_regular_file(program))
    throw refusal("{}: no noisefloor program, nor a folder with bin/noisefloor", build);
  return fs::absolute(program);
}

using Facts = Worker::Facts;

// `facts`: what it said of itself at its first start; filled then, and held to later.
std::unique_ptr<Worker> start(const char* which, const std::string& build, const std::string& device, Facts& facts) {
  ChildCommand command{{program_of(build).string(), "worker"}};
  if (!device.empty()) command.arguments.insert(command.arguments.end(), {"--device", device});
  WorkerOptions options;
  options.most_values = 0;  // it knows the ops itself
  auto worker = std::make_unique<Worker>(build, std::move(command), options);
  try {
    (void)worker->facts();
  } catch (const WorkerGone& error) {
    const std::string why = error.what();
    const bool old = why.find("unknown command 'worker'") != std::string::npos;
    throw refusal("the {} build: {}{}", which, why, old ? " (builds since 2026-11-22 have it)" : "");
  }
  if (facts.empty()) facts = worker->facts();
  if (facts != worker->facts()) throw refusal("the {} build: {} is another one than at the beginning", which, build);
  return worker;
}

std::string fact(const Facts& facts, const std::string& name) {
  for (const auto& [key, value] : facts)
    if (key == name) return value;
  return {};
}

// Unasked: our variants, one by one. A library is the same in both builds, and PyTorch is in neither.
void leave_out_unasked(std::vector<Case>& cases, const Selection& selection) {
  const bool asked = !selection.kinds.empty() || !selection.variants.empty();
  std::erase_if(
      cases, [&](const Case& one) { return one.implementation->in_worker || (!asked && !one.implementation->own()); });
}

int ab(const AbArguments& arguments) {
  const NameFilter filter = name_filter("--filter", arguments.filter);
  const auto problems = load_problems(arguments.cases.problems);
  OutputFiles outputs;
  outputs.add("--out", arguments.out);
  outputs.add("--markdown", arguments.markdown);
  Facts of_old, of_new;
  const auto start_old = [&] { return start("old", arguments.old_build, arguments.device, of_old); };
  const auto start_new = [&] { return start("new", arguments.new_build, arguments.device, of_new); };
  start_old(), start_new();
  for (const char* name : {"device", "gpu_uuid", "platform"})
    if (fact(of_old, name) != fact(of_new, name))
      throw refusal("the builds run on different devices: {} and {}", fact(of_old, "device"), fact(of_new, "device"));
  const bool host = fact(of_new, "platform") == "host";
  auto cases = select_cases(problems, arguments.cases.with_networks(problems, host), host);
  leave_out_unasked(cases, arguments.cases);
  std::erase_if(cases, [&](const Case& one) { return !filter(one.id().name()); });
  if (cases.empty())
    throw InvalidInput("no case matches; see noisefloor list problems, --ops, --networks and --filter");

  const double resolve = arguments.resolve / 100;
  const auto pairs = alternate({start_old, start_new}, cases, resolve, arguments.budget, arguments.all, say_line);
  const BuildPairText text{pairs, resolve, fact(of_old, "commit"), fact(of_new, "commit")};
  fmt::print("{}", terminal_text(report_of(text)));
  if (!arguments.out.empty()) outputs.write("--out", csv_text(text));
  if (!arguments.markdown.empty()) outputs.write("--markdown", markdown_text(report_of(text)));
  outputs.commit();
  const auto any = [&](BuildVerdict verdict) {
    return std::any_of(pairs.begin(), pairs.end(),
                       [&](const BuildPair& pair) { return verdict_of(pair, resolve) == verdict; });
  };
  if (any(BuildVerdict::slower) || any(BuildVerdict::wrong) || any(BuildVerdict::gone)) return kNotSo;
  const bool compared = std::any_of(pairs.begin(), pairs.end(), [](const BuildPair& pair) {
    return pair.why_not.empty() || pair.without_times == BuildVerdict::same_code;
  });
  if (!compared) return kCouldNot;
  return arguments.strict && any(BuildVerdict::unresolved) ? kNotSo : kDone;
}

}  // namespace

void add_ab_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "ab", "Time two builds in turns on one device: which cases became slower or faster?", ab);
  command.add_option("old", arguments.old_build, "A noisefloor program, or the folder of a build")->required();
  command.add_option("new", arguments.new_build, "Another one; the same one with --all shows how much equals differ")
      ->required();
  command.add_option("--filter", arguments.filter, "Only cases whose names match this regular expression");
  add_selection_options(command, arguments.cases, "our variants of ops");
  add_device_option(command, arguments.device);
  command.add_option("--resolve", arguments.resolve, "Smallest change of time to detect, in percent, 0.1 to 50")
      ->check(CLI::Range(0.1, 50.0))
      ->check(why_not_finite)
      ->capture_default_str();
  add_budget_option(
      command, arguments.budget,
      "After this many seconds start no more cases; those with fewer than five passes are unresolved then");
  command.add_flag("--strict", arguments.strict, "Fail on unresolved cases too");
  command.add_flag("--all", arguments.all, "Time also the cases whose machine code and arguments are the same in both");
  add_output_file(command, "--out", arguments.out, "CSV file to write: every case");
  add_output_file(command, "--markdown", arguments.markdown, "Markdown file to write");
  command.footer(
      "Each of five to sixteen passes (to 32 for a case that looks slower) starts both builds anew, lets them "
      "alternate\n"
      "case by case, and verifies every block. A case is slower if its whole interval over the passes, cold or warm, "
      "is\n"
      "above half of --resolve. Of equal builds, fewer than one case in a thousand is. Exit code: 0 no case is "
      "slower,\n"
      "1 a case is slower, wrong in the new build, or not run by it (--strict: or unresolved), 2 nothing could be "
      "compared.");
}

}  // namespace noisefloor
