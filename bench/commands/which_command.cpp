// noisefloor which: which variant of a problem, or of each of a network's, is the fastest, from the files of a run; no
// GPU.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "bench/sweep/problem_files.h"
#include "kernels/core/fields.h"
#include "kernels/core/listed.h"
#include "reports/run/run_folder.h"
#include "reports/which/which.h"

namespace noisefloor {
namespace {

struct WhichArguments {
  std::string op, problem, dtype, run, networks, ops, markdown;
};

// The newest of this folder, else what was published of this machine's GPU.
fs::path newest_or_published() {
  if (const auto newest = newest_run(); !newest.empty()) return newest;
  const auto published = default_problem_folder().parent_path().parent_path() / "reports" / "recorded";
  std::string why, known;
  for (const CudaDevice& gpu : list_cuda_devices(why))
    if (const auto its = published / device_slug(gpu.name); fs::exists(its)) return its;
  std::error_code none;
  for (const auto& folder : fs::directory_iterator(published, none)) known += "\n  " + folder.path().string();
  throw refusal("--run: there is no run in runs/, nor published results of a GPU of this machine; there are:{}", known);
}

// The problem as the rows have it, in the order of the op's fields where none has it as it was typed.
ProblemId require_problem(const RunFiles& run, const WhichArguments& arguments) {
  ProblemId id{arguments.op, arguments.problem, arguments.dtype};
  std::vector<std::string> ops, dtypes;
  const auto look = [&] {
    for (const SweepRow& row : run.rows) {
      if (std::ranges::count(ops, row.op) == 0) ops.push_back(row.op);
      if (row.op == id.op && row.problem == id.problem && std::ranges::count(dtypes, row.dtype) == 0)
        dtypes.push_back(row.dtype);
    }
  };
  look();
  const std::string folder = run.folder.string();
  if (std::ranges::count(ops, id.op) == 0)
    throw refusal("{} has no row of op '{}'; it has {}{}", folder, id.op, fmt::join(ops, ", "),
                  did_you_mean(id.op, ops));
  if (const SuiteEntry* const entry = suite().find(id.op); entry != nullptr && dtypes.empty())
    id.problem = entry->workload->print(entry->workload->parse(id.problem)), look();
  constexpr std::size_t kShown = 5;
  if (dtypes.empty())
    throw refusal("{} has no {} of '{}'; the nearest that it has:\n  {}", folder, id.op, id.problem,
                  fmt::join(nearest_problems(run.rows, id, kShown), "\n  "));
  if (id.dtype.empty()) id.dtype = std::ranges::count(dtypes, "bf16") > 0 ? "bf16" : dtypes.front();
  if (std::ranges::count(dtypes, id.dtype) == 0)
    throw refusal("--dtype {}: {} has this problem in {}", id.dtype, folder, fmt::join(dtypes, ", "));
  return id;
}

TextReport report_of_problem(const RunFiles& run, const ProblemId& id) {
  std::vector<std::string> inputs;
  if (const SuiteEntry* const entry = suite().find(id.op))
    for (const TensorSpec& tensor : entry->workload->tensors(entry->workload->parse(id.problem), DType::bf16))
      if (tensor.role != Role::out) inputs.push_back(tensor.name);
  return which_report(run, id, inputs);
}

int which(const WhichArguments& arguments) {
  const bool one = !arguments.problem.empty();
  if (one != arguments.networks.empty() || (one && !arguments.ops.empty()) ||
      (!one && !(arguments.op + arguments.dtype).empty()))
    throw refusal("give an op and its problem, or --networks, with --ops or without");
  const std::string folder = arguments.run.empty() ? newest_or_published().string() : arguments.run;
  OutputFiles outputs;
  outputs.add_input_run("--run", folder);
  outputs.add("--markdown", arguments.markdown);
  CeilingTable ceilings;
  const RunFiles run = read_completed_run(folder, ceilings);
  const ProblemId id = one ? require_problem(run, arguments) : ProblemId{};
  const TextReport report =
      one ? report_of_problem(run, id) : which_table(run, split_list(arguments.networks), split_list(arguments.ops));
  if (!arguments.markdown.empty()) outputs.write("--markdown", markdown_text(report));
  outputs.commit();
  fmt::print("{}", terminal_text(report));
  const bool timed = !one || std::ranges::any_of(run.rows, [&](const SweepRow& row) {
    return row.problem_id() == id && row.status == Outcome::ok;
  });
  return timed ? kDone : kCouldNot;
}

}  // namespace

void add_which_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "which", "Say which variant of a problem is the fastest in a run, and how to call it", which);
  command.add_option("op", arguments.op, "An op (noisefloor list ops)");
  command.add_option("problem", arguments.problem, "Its problem, as text: m=4096,n=9216,k=3072");
  command.add_option("--networks", arguments.networks,
                     "In place of both, a table of all problems of these networks or sets that the run has, "
                     "comma-separated, or 'all': our fastest beside the baselines");
  command.add_option("--ops", arguments.ops, "Of --networks only these ops, comma-separated");
  command.add_option("--run", arguments.run,
                     "Folder of a run (default: the newest in runs/, else what is published of this machine's GPU)");
  command.add_option("--dtype", arguments.dtype, "bf16, fp16 or fp32 (default: bf16, or what the run has)");
  add_output_file(command, "--markdown", arguments.markdown, "Write the tables as GitHub-flavoured Markdown");
  command.footer(
      "No GPU is needed. Exit code 2 where nothing of it has a time; and with the nearest problems where the run "
      "lacks this one.");
}

}  // namespace noisefloor
