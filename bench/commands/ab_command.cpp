// noisefloor ab: two builds, or two Python environments, in turns, case by case.
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/platform/console.h"
#include "bench/sweep/alternate.h"
#include "bench/sweep/selection.h"
#include "bench/sweep/workers.h"
#include "reports/ab/build_pair_report.h"

namespace noisefloor {
namespace {

struct AbArguments {
  std::string old_build, new_build, device, filter, out, markdown;  // old_build: a Python file's name with `pythons`
  std::vector<std::string> pythons;
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

// Gone at the end, by a process that also sees this one's, however that comes.
struct ScratchFolder {
  ScratchFolder() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "noisefloor-ab-XXXXXX").string();
    if (error) throw refusal("no folder for temporary files: {} (TMPDIR)", error.message());
    if (mkdtemp(name.data()) == nullptr) throw refusal("{}: no folder can be made there", name);
    path = name;
    constexpr const char* kRemove =
        "trap '' INT HUP; trap 'kill $!; rm -rf -- \"$0\"; exit' TERM; sleep infinity & wait";
    remover = std::make_unique<ChildProcess>(ChildCommand{{"/bin/sh", "-c", kRemove, name}}, ChildRole::lane);
  }
  ~ScratchFolder() {
    remover->tell(SIGTERM);
    (void)remover->wait();
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  fs::path path;
  std::unique_ptr<ChildProcess> remover;
};

using Facts = Worker::Facts;

ChildCommand command_of_build(const std::string& build, const std::string& device) {
  ChildCommand command{{program_of(build).string(), "worker"}};
  if (!device.empty()) command.arguments.insert(command.arguments.end(), {"--device", device});
  return command;
}

// `which`: "old build". `facts`: what it said of itself at its first start; filled then, and held to later.
std::unique_ptr<Worker> start(const std::string& which, const std::string& name, ChildCommand command, Facts& facts,
                              WorkerOptions options = {}) {
  options.most_values = 0;  // it knows the ops itself
  auto worker = std::make_unique<Worker>(name, std::move(command), options);
  try {
    (void)worker->facts();
  } catch (const WorkerGone& error) {
    const std::string why = error.what();
    const bool old = why.find("unknown command 'worker'") != std::string::npos;
    throw refusal("the {}: {}{}", which, why, old ? " (builds since 2026-11-22 have it)" : "");
  }
  if (facts.empty()) facts = worker->facts();
  if (facts != worker->facts()) throw refusal("the {}: {} is another one than at the beginning", which, name);
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

void require_one_device(const char* what, const Facts& of_old, const Facts& of_new) {
  for (const char* name : {"device", "gpu_uuid", "platform"})
    if (fact(of_old, name) != fact(of_new, name))
      throw refusal("the {}s run on different devices: {} and {}", what, fact(of_old, "device"),
                    fact(of_new, "device"));
}

// The exit code.
int finish(const AbArguments& arguments, const BuildPairText& text, OutputFiles& outputs) {
  fmt::print("{}", terminal_text(report_of(text)));
  if (!arguments.out.empty()) outputs.write("--out", csv_text(text));
  if (!arguments.markdown.empty()) outputs.write("--markdown", markdown_text(report_of(text)));
  outputs.commit();
  const auto any = [&](BuildVerdict verdict) {
    return std::ranges::any_of(text.pairs,
                               [&](const BuildPair& pair) { return verdict_of(pair, text.resolve) == verdict; });
  };
  if (any(BuildVerdict::slower) || any(BuildVerdict::wrong) || any(BuildVerdict::gone)) return kNotSo;
  const bool compared = std::ranges::any_of(text.pairs, [](const BuildPair& pair) {
    return pair.why_not.empty() || pair.without_times == BuildVerdict::same_code;
  });
  if (!compared) {
    fmt::print(stderr, "nothing could be compared: {}\n", text.pairs.front().why_not);
    return kCouldNot;
  }
  return arguments.strict && any(BuildVerdict::unresolved) ? kNotSo : kDone;
}

int ab_of_environments(const AbArguments& arguments, const NameFilter& filter, OutputFiles& outputs) {
  const std::string& file = arguments.old_build;
  const auto& pythons = arguments.pythons;
  if (pythons.size() != 2 || !arguments.new_build.empty())
    throw refusal("--python is given twice, for the old and the new environment, with one file behind --");
  if (!fs::is_regular_file(file)) throw refusal("{}: no such file", file);
  const ScratchFolder kept;
  const auto old_command = python_side(pythons[0], file, kept.path, "old"),
             new_command = python_side(pythons[1], file, kept.path, "new");
  WorkerOptions limits;
  limits.ready_seconds = limits.answer_seconds = seconds_of_a_case();
  Facts of_old, of_new;
  const auto start_old = [&] { return start("old environment", pythons[0], old_command, of_old, limits); };
  const auto start_new = [&] { return start("new environment", pythons[1], new_command, of_new, limits); };
  auto older = start_old(), newer = start_new();
  require_one_device("environment", of_old, of_new);
  auto cases = cases_of(*older, *newer);
  std::erase_if(cases, [&](const PairedCase& one) { return !filter(one.name); });
  if (cases.empty()) throw refusal("no case of {} matches --filter", file);
  TextPart beside{"On " + fact(of_new, "device"), differences(*older, *newer, cases)};
  older.reset(), newer.reset();
  const double resolve = arguments.resolve / 100;
  const auto pairs = alternate({start_old, start_new, "environment"}, cases, resolve, arguments.budget, say_line);
  return finish(arguments, {pairs, resolve, pythons[0], pythons[1], std::move(beside)}, outputs);
}

int ab(const AbArguments& arguments) {
  const NameFilter filter = name_filter("--filter", arguments.filter);
  OutputFiles outputs;
  outputs.add("--out", arguments.out);
  outputs.add("--markdown", arguments.markdown);
  if (!arguments.pythons.empty()) return ab_of_environments(arguments, filter, outputs);
  if (arguments.new_build.empty()) throw InvalidInput("name two builds, or --python twice and a Python file");
  const auto problems = load_problems(arguments.cases.problems);
  const auto command = [&](const std::string& build) { return command_of_build(build, arguments.device); };
  Facts of_old, of_new;
  const auto start_old = [&] { return start("old build", arguments.old_build, command(arguments.old_build), of_old); };
  const auto start_new = [&] { return start("new build", arguments.new_build, command(arguments.new_build), of_new); };
  start_old(), start_new();
  require_one_device("build", of_old, of_new);
  const bool host = fact(of_new, "platform") == "host";
  auto cases = select_cases(problems, arguments.cases.with_networks(problems, host), host);
  leave_out_unasked(cases, arguments.cases);
  std::erase_if(cases, [&](const Case& one) { return !filter(one.id().name()); });
  if (cases.empty())
    throw InvalidInput("no case matches; see noisefloor list problems, --ops, --networks and --filter");

  std::vector<PairedCase> paired;
  for (const Case& one : cases) {
    paired.push_back({one.id().name(), [&one](Worker& build) { return std::make_unique<WorkerCase>(build, one); }});
    if (!arguments.all)
      paired.back().signature = [&one](Worker& build, std::string& refuses) {
        return ask_signature(build, one, &refuses);
      };
  }
  const double resolve = arguments.resolve / 100;
  const auto pairs = alternate({start_old, start_new}, paired, resolve, arguments.budget, say_line);
  return finish(arguments, {pairs, resolve, fact(of_old, "commit"), fact(of_new, "commit")}, outputs);
}

}  // namespace

void add_ab_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "ab",
      "Time two builds, or a file's functions in two Python environments, in turns: what became slower or faster?", ab);
  command
      .add_option("old", arguments.old_build,
                  "A noisefloor program, or the folder of a build; with --python the file, behind --")
      ->required();
  command.add_option("new", arguments.new_build, "Another build; the same one with --all shows how much equals differ");
  command
      .add_option("--python", arguments.pythons,
                  "Twice, old and new: the folder of a virtual environment, or a Python; with @REV "
                  "behind it, or @REV alone, that revision of this folder's repository is imported")
      ->allow_extra_args(false);
  command.add_option("--filter", arguments.filter, "Only cases whose names match this regular expression");
  add_selection_options(command, arguments.cases, "our variants of ops");
  add_device_option(command, arguments.device);
  command.parse_complete_callback([app = &command] {
    for (const char* name : {"--ops", "--networks", "--variants", "--kinds", "--dtypes", "--problems", "--device"})
      if (app->count("--python") > 0 && app->count(name) > 0) throw CLI::ExcludesError("--python", name);
  });
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
