// noisefloor problems: what one call of a network asks of each op.
#include <fmt/format.h>

#include "bench/commands/commands.h"
#include "bench/commands/pipeline_options.h"
#include "networks/graph.h"
#include "networks/rewrite.h"
#include "networks/training.h"

namespace noisefloor {
namespace {

using networks::build_or_say_limit;

struct ProblemsArguments {
  std::string network, dtype = "bf16";
  std::int64_t batch = 1;
  networks::Sizes sizes;
  bool unfused = false, folded = false, training = false;
};

std::vector<networks::CountedProblem> counted(const ProblemsArguments& arguments) {
  const auto& info = networks::require_network(arguments.network);
  const DType dtype = require_dtype(*require_op("conv2d").workload, arguments.dtype);
  if (arguments.training)
    return count_problems(
        build_training(info, {.batch = arguments.batch, .dtype = dtype, .sizes = arguments.sizes}).network.graph);
  const networks::Network network = build_or_say_limit(info, {.batch = arguments.batch,
                                                              .dtype = dtype,
                                                              .original = arguments.unfused,
                                                              .merge_products = !arguments.unfused,
                                                              .fold_skips = arguments.folded,
                                                              .sizes = arguments.sizes});
  if (arguments.folded) return networks::count_foldable(network);
  return arguments.unfused ? count_unfused(network.graph) : count_problems(network.graph);
}

int print_problems(const ProblemsArguments& arguments) {
  const auto problems = counted(arguments);
  fmt::print("op,dtype,problem,count\n");
  for (const auto& problem : problems)
    fmt::print("{},{},\"{}\",{}\n", problem.op->name, to_string(problem.dtype), problem.text, problem.count);
  return kDone;
}

}  // namespace

void add_problems_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "problems", "Print the problems of one call of a network, with counts, as CSV", print_problems);
  command.add_option("network", arguments.network, known_networks())->required();
  command.add_option("--batch", arguments.batch, "Images; too many are refused with the network's range")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  add_size_option(command, arguments.sizes);
  command.add_option("--dtype", arguments.dtype, "bf16, fp16 or fp32")->capture_default_str();
  const auto unfused = command.add_flag(
      "--unfused", arguments.unfused,
      "List each layer of the published network by itself, as noisefloor.capture() finds it in PyTorch");
  const auto folded =
      command
          .add_flag(
              "--folded", arguments.folded,
              "List what plans own and fastest may launch on sm_90a, with skip connections and norms in the nodes that "
              "read them, whichever norms pay")
          ->excludes(unfused);
  command.add_flag("--training", arguments.training, "List a whole training step: forward, backward, update")
      ->excludes(unfused)
      ->excludes(folded);
}

}  // namespace noisefloor
