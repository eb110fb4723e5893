// The options of `noisefloor sweep`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/commands/sweep_arguments.h"
#include "bench/sweep/pytorch.h"

namespace noisefloor {

void add_sweep_options(CLI::App& command, SweepArguments& arguments) {
  arguments.cases.add_to(command, "all that the device runs");
  add_plugin_options(command, arguments.plugins);
  command.add_option("--device", arguments.device,
                     "CUDA device number, 'host', or 'all': every GPU at the same time, each into its own folder "
                     "(default: GPU 0, else the host)");
  command.add_option("--out", arguments.out, "Run folder; an existing one is resumed (default: runs/<device>/<time>)");
  command
      .add_option("--runs", arguments.runs,
                  "As scripts/sweep: resume the newest run below RUNS/<device> if it is of the same command and was "
                  "cut short, else begin another; at the end, do what noisefloor roofline does")
      ->take_last();  // scripts give theirs first
  command.add_option(
      "--shard", arguments.shard,
      "Sweep only part I/N: every N-th problem, with all its cases; noisefloor merge makes one run of all parts");
  command.add_flag("--fresh", arguments.fresh, "Begin again, do not resume");
  command.add_flag("--search-again", arguments.search_again,
                   "Search again for the libraries' fastest algorithms, without those of cached searches");
  command.add_option("--budget", arguments.budget, "After this many seconds start no more problems")
      ->check(CLI::PositiveNumber)
      ->check(why_not_finite);
  command.add_option("--counters", arguments.counters, "Hardware counters: off, auto or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  command
      .add_option("--pytorch", arguments.pytorch,
                  "PyTorch's rows: off, auto (if a Python here has a PyTorch that sees the GPU) or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  command
      .add_option("--max-autotune", arguments.max_autotune,
                  fmt::format("Also measure {} on each network's N costliest problems (count times cost), 10 to 20 s a "
                              "row; name it in --variants for all",
                              kMaxAutotune))
      ->check(CLI::Range(1, 1000));
  command.add_flag("--no-duels", arguments.no_duels,
                   "Skip duels: our best against the best baseline of each problem, in turns");
  command.footer(
      "Google Benchmark's flags work too: --benchmark_filter=RE, --benchmark_list_tests, --benchmark_format=json,\n"
      "--benchmark_out=OUTFILE (written whole at the end).\n"
      "Exit code: 0 all cases of ours are correct, 1 one is incorrect or failed, 2 could not sweep. What a library "
      "gets\n"
      "wrong is in its row, and does not count.");
}

}  // namespace noisefloor
