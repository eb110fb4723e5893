// noisefloor compare: two runs beside each other, from their files alone.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "bench/commands/commands.h"
#include "bench/commands/output_files.h"
#include "kernels/core/listed.h"
#include "reports/gate/gate.h"

namespace noisefloor {
namespace {

struct CompareArguments {
  std::string a, b, markdown, filter, variants;
};

int compare(const CompareArguments& arguments) {
  std::vector<std::string> variants = split_list(arguments.variants);
  if (!variants.empty() && variants.size() != 2)
    throw refusal("--variants {}: is two, that of A and that of B", arguments.variants);
  variants.resize(2);
  OutputFiles outputs;
  outputs.add_input_run("the run A", arguments.a);
  outputs.add_input_run("the run B", arguments.b);
  outputs.add("--markdown", arguments.markdown);
  const RunFiles a = read_run(arguments.a), b = read_run(arguments.b);
  const RowPairing options{variants[0], variants[1], name_filter("--filter", arguments.filter)};
  GateResult both;
  both.judged = false;
  both.name_a = variants[0].empty() ? "A" : "A " + variants[0];
  both.name_b = variants[1].empty() ? "B" : "B " + variants[1];
  for (const RowPair& pair : pair_rows(a, b, options)) {
    const bool ok_a = pair.a != nullptr && pair.a->status == Outcome::ok;
    const bool ok_b = pair.b != nullptr && pair.b->status == Outcome::ok;
    if (ok_a && ok_b)
      both.rows.emplace_back().change = row_change(a, b, pair);
    else if (ok_a || ok_b)
      both.gaps.push_back({pair.named(), GateGap::Weight::noted,
                           fmt::format("{} in A, {} in B", pair.a == nullptr ? "missing" : to_string(pair.a->status),
                                       pair.b == nullptr ? "missing" : to_string(pair.b->status))});
  }
  if (both.rows.empty()) throw refusal("{} and {} have no row that is ok in both", arguments.a, arguments.b);
  std::ranges::stable_sort(both.rows, std::greater(), [](const GateRow& row) { return row.change.cold.change; });
  both.totals = total_changes(a, b, options);
  both.conditions = environment_differences(a, b);
  double log_sum = 0;
  for (const GateRow& row : both.rows) log_sum += std::log1p(row.change.cold.change);
  both.headline =
      fmt::format("A is {}, B is {}: {} rows in both, B takes {:.3f} times A's time (geometric mean)", arguments.a,
                  arguments.b, both.rows.size(), std::exp(log_sum / static_cast<double>(both.rows.size())));
  if (!arguments.markdown.empty()) outputs.write("--markdown", markdown_text(both));
  outputs.commit();
  fmt::print("{}", terminal_text(both));
  return kDone;
}

}  // namespace

void add_compare_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] =
      add_command(app, result, "compare", "Compare two runs (devices, commits, variants), without a verdict", compare);
  command.add_option("a", arguments.a, "Folder of a run")->required();
  command.add_option("b", arguments.b, "Folder of another, or the same one with --variants")->required();
  command.add_option("--variants", arguments.variants,
                     "Two, with a comma: compare this variant of A with that one of B, on the same problems");
  command.add_option("--filter", arguments.filter,
                     "Only rows whose op/problem/dtype/variant matches this regular expression");
  add_output_file(command, "--markdown", arguments.markdown, "Write the tables as GitHub-flavoured Markdown");
}

}  // namespace noisefloor
