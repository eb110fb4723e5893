// noisefloor ab: two builds in turns, case by case.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "bench/commands/benchmark_flags.h"
#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/commands/selection_options.h"
#include "bench/sweep/alternate.h"
#include "reports/build_duel_report.h"
#include "reports/run/files.h"

namespace noisefloor {
namespace {

namespace fs = std::filesystem;

struct AbArguments {
  std::string old_build, new_build, device, filter, out, markdown;
  SelectionOptions cases;
  double resolve = 1;
  bool strict = false;
};

// A program, or a folder with bin/noisefloor.
fs::path program_of(const std::string& build) {
  fs::path program = build;
  if (fs::is_directory(program)) program /= "bin/noisefloor";
  if (!fs::is_regular_file(program))
    throw InvalidInput(fmt::format("{}: no noisefloor program, nor a folder with bin/noisefloor", build));
  return fs::absolute(program);
}

std::unique_ptr<Worker> start(const char* which, const std::string& build, const std::string& device) {
  WorkerCommand command{{program_of(build).string(), "worker"}};
  if (!device.empty()) command.arguments.insert(command.arguments.end(), {"--device", device});
  WorkerOptions options;
  options.most_values = 0;  // it knows the ops itself
  auto worker = std::make_unique<Worker>(build, std::move(command), options);
  try {
    (void)worker->facts();
  } catch (const WorkerGone& error) {
    throw InvalidInput(fmt::format(
        "the {} build: {} (`noisefloor worker` is needed, which builds have since 2026-11-22)", which, error.what()));
  }
  return worker;
}

std::string fact(Worker& worker, const std::string& name) {
  for (const auto& [key, value] : worker.facts())
    if (key == name) return value;
  return {};
}

// Unasked: our variants, one by one. A library is the same in both builds, and PyTorch is in neither.
void leave_out_unasked(std::vector<Case>& cases, const SelectionOptions& options) {
  const bool asked = !options.kinds.empty() || !options.variants.empty();
  std::erase_if(
      cases, [&](const Case& one) { return one.implementation->in_worker || (!asked && !one.implementation->own()); });
}

int ab(const AbArguments& arguments) {
  const BenchmarkFlags filter = parse_benchmark_flags({"--benchmark_filter=" + arguments.filter});
  const auto problems = arguments.cases.load();
  OutputFiles outputs;
  outputs.add("--out", arguments.out);
  outputs.add("--markdown", arguments.markdown);
  std::string commits[2];
  bool host = false;
  {
    const auto older = start("old", arguments.old_build, arguments.device),
               newer = start("new", arguments.new_build, arguments.device);
    for (const char* name : {"device", "gpu_uuid", "platform"})
      if (fact(*older, name) != fact(*newer, name))
        throw InvalidInput(fmt::format("the builds run on different devices: {} and {}", fact(*older, "device"),
                                       fact(*newer, "device")));
    host = fact(*newer, "platform") == "host";
    commits[0] = fact(*older, "commit");
    commits[1] = fact(*newer, "commit");
  }
  auto cases = select_cases(problems, arguments.cases.selection(problems, host), host);
  leave_out_unasked(cases, arguments.cases);
  std::erase_if(cases, [&](const Case& one) { return !filter.matches(one.id().name()); });
  if (cases.empty())
    throw InvalidInput("no case matches; see noisefloor list problems, --ops, --networks and --filter");

  AlternateOptions options;
  options.resolve = arguments.resolve / 100;
  const auto duels = alternate({[&] { return start("old", arguments.old_build, arguments.device); },
                                [&] { return start("new", arguments.new_build, arguments.device); }},
                               cases, options, [](const std::string& line) { fmt::print(stderr, "{}\n", line); });
  const BuildDuelText text{duels, options.resolve, commits[0], commits[1]};
  fmt::print("{}", terminal_text(text));
  if (!arguments.out.empty()) write_atomically(outputs.partial("--out"), csv_text(text));
  if (!arguments.markdown.empty()) write_atomically(outputs.partial("--markdown"), markdown_text(text));
  outputs.commit();
  const auto any = [&](BuildVerdict verdict) {
    return std::any_of(duels.begin(), duels.end(),
                       [&](const BuildDuel& duel) { return verdict_of(duel, options.resolve) == verdict; });
  };
  if (any(BuildVerdict::slower) || any(BuildVerdict::wrong)) return kNotSo;
  if (arguments.strict && any(BuildVerdict::unresolved)) return kNotSo;
  const bool compared = any(BuildVerdict::equal) || any(BuildVerdict::faster) || any(BuildVerdict::unresolved);
  return compared ? kDone : kCouldNot;
}

}  // namespace

void add_ab_command(CLI::App& app, CommandResult result) {
  CLI::App* command =
      app.add_subcommand("ab", "Two builds in turns on one device, case by case: which cases became slower or faster");
  auto arguments = std::make_shared<AbArguments>();
  command->add_option("old", arguments->old_build, "A noisefloor program, or the folder of a build")->required();
  command->add_option("new", arguments->new_build, "Another one; the same shows how far equals differ")->required();
  command->add_option("--filter", arguments->filter, "Only cases whose names match this regular expression");
  arguments->cases.add_to(*command, "ours, op by op");
  command->add_option("--device", arguments->device, "CUDA device number, or 'host' (default: 0 where there is one)");
  command->add_option("--resolve", arguments->resolve, "Percent of time that is to be told from nothing, 0.1 to 50")
      ->check(CLI::Range(0.1, 50.0))
      ->capture_default_str();
  command->add_flag("--strict", arguments->strict, "Unresolved cases fail too");
  command->add_option("--out", arguments->out, "CSV file to write: every case");
  command->add_option("--markdown", arguments->markdown, "Markdown file to write");
  command->footer(
      "Each pass starts both builds anew and lets them alternate, case by case, verified in every block; five to\n"
      "sixteen passes. A case is slower where the whole interval over the passes, cold or warm, is above half of\n"
      "--resolve, with one chance in ten thousand to be so of equal builds.\n"
      "Exit code: 0 none slower, 1 a case is slower or the new build's result is wrong, 2 nothing could be compared.");
  command->callback([=] { *result = [=] { return ab(*arguments); }; });
}

}  // namespace noisefloor
