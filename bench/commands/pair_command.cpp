// noisefloor pair: two implementations of an op in turns, problem by problem.
#include <fmt/format.h>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/measure/case_result.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/pair.h"
#include "bench/measure/worker.h"
#include "bench/sweep/problem_files.h"
#include "bench/sweep/workers.h"
#include "reports/run/csv.h"

namespace noisefloor {
namespace {

struct PairArguments {
  std::string op, first, second, problem, problems, networks, dtype = "bf16", device, out;
  std::vector<std::string> plugins;
};

// Of one problem, or of all that networks have.
std::vector<std::pair<AnyProblem, std::string>> problems_of(const SuiteEntry& entry, const PairArguments& arguments) {
  if (arguments.problem.empty() == arguments.networks.empty())
    throw InvalidInput("give --problem, or --networks whose problems are compared over");
  std::vector<std::pair<AnyProblem, std::string>> chosen;
  if (!arguments.problem.empty()) {
    const AnyProblem problem = entry.workload->parse(arguments.problem);
    return {{problem, entry.workload->print(problem)}};
  }
  for (const ProblemEntry& one : in_networks(load_problems(arguments.problems), split_list(arguments.networks)))
    if (one.entry == &entry) chosen.emplace_back(one.problem, one.text);
  if (chosen.empty()) throw refusal("these networks have no {}", entry.name());
  return chosen;
}

std::string csv_line(const std::string& problem, const PairArguments& arguments, const PairResult& result) {
  const auto text = [](double ratio) { return fmt::format("{:.5g}", ratio); };
  const auto &cold = result.cold, &warm = result.warm;
  return csv_row(arguments.op, problem, arguments.dtype, arguments.first, arguments.second, text(cold.value),
                 text(cold.low), text(cold.high), text(warm.value), text(warm.low), text(warm.high), result.rounds);
}

int pair(const PairArguments& arguments) {
  add_plugins(arguments.plugins, arguments.device);
  const SuiteEntry& entry = require_op(arguments.op);
  const ImplementationPtr first = require_implementation(entry, arguments.first),
                          second = require_implementation(entry, arguments.second);
  const DType dtype = require_dtype(*entry.workload, arguments.dtype);
  const auto problems = problems_of(entry, arguments);
  OutputFiles outputs;
  outputs.add("--out", arguments.out);
  const auto platform = open_platform(arguments.device);
  std::unique_ptr<Worker> pytorch;
  if (first->in_worker && second->in_worker)
    throw InvalidInput("PyTorch's worker has one case at a time: one side must be another's");
  if (first->in_worker || second->in_worker) pytorch = start_pytorch(platform->description().index, false);
  RunnerOptions options;
  options.counters = CounterMode::off;
  options.worker = pytorch.get();
  const auto neighbour = neighbour_of(*platform);
  options.neighbour = neighbour.get();
  CaseRunner runner(*platform, nullptr, options);

  std::string csv = "op,problem,dtype,first,second,cold,cold_low,cold_high,warm,warm_low,warm_high,rounds\n";
  int compared = 0, wrong = 0;
  for (const auto& [problem, text] : problems) {
    std::string why_not;
    for (const ImplementationPtr& one : {first, second})
      if (const auto row = refused({&entry, one, problem, dtype, text}, platform->description(), platform->arch_text()))
        why_not = fmt::format("{}: {}", one->name, row->reason);
    PairResult result;
    try {
      if (why_not.empty())
        result = runner.run_pair({&entry, first, problem, dtype, text}, {&entry, second, problem, dtype, text});
    } catch (const DeviceError&) {
      throw;
    } catch (const std::runtime_error& error) {  // a library that is missing or refuses, or memory
      why_not = error.what();
    }
    if (!result.wrong.empty()) ++wrong;
    if (!why_not.empty() || !result.wrong.empty()) {
      fmt::print("{}: not compared: {}\n", text, why_not.empty() ? result.wrong : why_not);
      continue;
    }
    ++compared;
    csv += csv_line(text, arguments, result);
    fmt::print("{}: cold {}, warm {}, {} rounds\n", text, text_of(result.cold), text_of(result.warm), result.rounds);
  }
  if (!arguments.out.empty()) outputs.write("--out", csv);
  outputs.commit();
  return wrong > 0 ? kNotSo : compared > 0 ? kDone : kCouldNot;
}

}  // namespace

void add_pair_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "pair", "Time two implementations in turns, so that clock and heat affect both alike", pair);
  command.add_option("op", arguments.op, "An op (noisefloor list ops)")->required();
  command.add_option("first", arguments.first, "A variant or baseline of it (noisefloor list variants)")->required();
  command
      .add_option("second", arguments.second, "What it is compared with; the same name shows how much equals differ")
      ->required();
  command.add_option("--problem", arguments.problem, "One problem, as text");
  command.add_option("--networks", arguments.networks, "Or all problems of these networks, comma-separated");
  add_problems_option(command, arguments.problems);
  command.add_option("--dtype", arguments.dtype, "bf16, fp16 or fp32")->capture_default_str();
  add_device_option(command, arguments.device);
  add_output_file(command, "--out", arguments.out, "CSV file to write");
  add_plugin_option(command, arguments.plugins);
  command.footer(
      "Prints the second's time over the first's, with its interval (19 in 20): above 1 the first is faster.\nExit "
      "code: 0 timed, 1 a result was wrong, 2 nothing could be timed.");
}

}  // namespace noisefloor
