// The options of `noisefloor sweep`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "bench/commands/sweep_arguments.h"
#include "bench/sweep/pytorch.h"

namespace noisefloor {

void add_sweep_options(CLI::App& command, SweepArguments& arguments) {
  arguments.cases.add_to(command, "all that the device runs");
  add_plugin_options(command, arguments.plugins);
  command.add_option(
      "--device", arguments.device,
      "CUDA device number, 'host', or 'all': every GPU side by side, each in a folder of its own (default: 0 "
      "where there is one)");
  command.add_option("--out", arguments.out, "Run folder; one that exists is resumed (default: runs/<device>/<time>)");
  command
      .add_option("--runs", arguments.runs,
                  "As scripts/sweep: where the newest run below RUNS/<device> is of the same command and was cut "
                  "short, resume it, else begin another; at the end do as noisefloor roofline does")
      ->take_last();  // scripts give theirs first
  command.add_option(
      "--shard", arguments.shard,
      "Only part I/N of the problems, every N-th with all of its cases; noisefloor merge makes one run of all "
      "parts");
  command.add_flag("--fresh", arguments.fresh, "Start the run folder again");
  command.add_flag("--search-again", arguments.search_again,
                   "Search anew for the libraries' fastest algorithms, also where earlier searches are cached");
  command
      .add_option("--budget", arguments.budget,
                  "Stop starting cases, and leave a library's search, after this many seconds")
      ->check(CLI::PositiveNumber)
      ->check(why_not_finite);
  command.add_option("--counters", arguments.counters, "Hardware counters: off, auto or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  command
      .add_option("--pytorch", arguments.pytorch,
                  "PyTorch's rows: off, auto (where a Python here has one that sees the GPU) or require")
      ->check(CLI::IsMember({"off", "auto", "require"}))
      ->capture_default_str();
  command
      .add_option("--max-autotune", arguments.max_autotune,
                  fmt::format("Of each network the N costliest problems (count times cost) also as {}, at 10 to 20 s "
                              "a row; --variants names it for all",
                              kMaxAutotune))
      ->check(CLI::Range(1, 1000));
  command.add_flag("--no-duels", arguments.no_duels,
                   "Without duels: the best of ours and the best baseline of each problem in turns");
  command.add_flag("--do-bench", arguments.do_bench,
                   "Also write crosscheck.csv: the cold time of PyTorch's rows beside triton.testing.do_bench's");
  command.footer(
      "Google Benchmark's flags work too: --benchmark_filter=RE, --benchmark_list_tests, --benchmark_format=json,\n"
      "--benchmark_out=FILE (written whole at the end).\n"
      "Exit code: 0 all of ours correct, 1 a case of ours is incorrect or failed, 2 could not sweep. What a library "
      "gets\n"
      "wrong is a row.");
}

}  // namespace noisefloor
