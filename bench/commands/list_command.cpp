// noisefloor list: what there is to sweep.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/measure/candidate.h"
#include "bench/sweep/ops.h"
#include "bench/sweep/problem_files.h"
#include "reports/run/columns.h"

namespace noisefloor {
namespace {

struct ListArguments {
  std::string what, filter, ops, networks, problems, format = "text";
};

void list_ops(const std::regex& filter) {
  for (const Op* op : swept_ops()) {
    if (!std::regex_search(op->name, filter)) continue;
    std::vector<std::string> dtypes;
    for (const DType dtype : op->dtypes) dtypes.push_back(to_string(dtype));
    fmt::print("{}  ({})\n", op->name, fmt::join(dtypes, ", "));
    for (const std::string& field : op->fields) fmt::print("  {}\n", field);
  }
}

void list_variants(const std::regex& filter) {
  fmt::print("{:<14} {:<22} {:<12} {:<8} {}\n", "op", "variant", "kind", "arch", "built");
  for (const Op* op : swept_ops())
    for (const Candidate& candidate : candidates_of(*op))
      if (std::regex_search(op->name + "/" + candidate.name, filter))
        fmt::print("{:<14} {:<22} {:<12} {:<8} {}\n", op->name, candidate.name, candidate.kind_text(),
                   to_string(candidate.arch), candidate.built() ? "yes" : "no");
}

// A field's default, from its line "name: range (default value)" in Op::fields; nothing for a field that must be given.
std::optional<KeyValue> default_of(const std::string& field) {
  static const std::regex with_default("([^:]+): .* \\(default (.*)\\)");
  std::smatch parts;
  if (!std::regex_match(field, parts, with_default)) return std::nullopt;
  return KeyValue{parts[1], parts[2]};
}

constexpr std::int64_t kMaxListedElements = 4096;

// How the inputs are filled: "filled" has the values of the tensors that the op fills itself (null for an infinity),
// "normal" the mean and standard deviation of the random ones.
void describe_inputs(const ProblemEntry& entry, nlohmann::ordered_json& line) {
  const Op& op = *entry.op;
  const DType dtype = op.dtypes.front();
  const auto specs = op.tensors(entry.problem, dtype);
  line["filled"] = line["normal"] = nlohmann::ordered_json::object();
  for (std::size_t tensor = 0; tensor < specs.size(); ++tensor) {
    const TensorSpec& spec = specs[tensor];
    if (spec.role == Role::out) continue;
    if (spec.fill.kind == Fill::Kind::normal) {
      line["normal"][spec.name] = {spec.fill.mean, spec.fill.stddev};
    } else if (spec.elements() <= kMaxListedElements) {
      std::vector<std::byte> data(spec.bytes());
      op.fill(entry.problem, dtype, tensor, data.data());
      std::vector<double> values(static_cast<std::size_t>(spec.elements()));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = load_element(spec.dtype, data.data(), static_cast<std::int64_t>(i));
      line["filled"][spec.name] = values;
    }
  }
}

// What another program needs to time the same problem: every field, defaults too, per dtype what it costs and how
// exact it must be, and its inputs.
void print_json(const ProblemEntry& entry) {
  nlohmann::ordered_json fields = nlohmann::ordered_json::object();
  for (const std::string& field : entry.op->fields)
    if (const auto pair = default_of(field)) fields[pair->key] = pair->value;
  for (const KeyValue& pair : split_problem_text(entry.text)) fields[pair.key] = pair.value;
  nlohmann::ordered_json dtypes = nlohmann::ordered_json::object();
  for (const DType dtype : entry.op->dtypes) {
    const Cost cost = entry.op->cost(entry.problem, dtype);
    const Tolerance tolerance = entry.op->tolerance(entry.problem, dtype);
    dtypes[to_string(dtype)] = {{"flops", cost.flops},
                                {"bytes", cost.bytes},
                                {"max_error", tolerance.max_error},
                                {"l2_error", tolerance.l2_error}};
  }
  nlohmann::ordered_json line = {{"op", entry.op->name},
                                 {"problem", entry.text},
                                 {"networks", entry.networks()},
                                 {"fields", fields},
                                 {"dtypes", dtypes}};
  describe_inputs(entry, line);
  fmt::print("{}\n", line.dump());
}

int list(const ListArguments& arguments) {
  std::regex filter;
  try {
    filter = std::regex(arguments.filter.empty() ? "." : arguments.filter, std::regex::extended);
  } catch (const std::regex_error&) {
    throw InvalidInput(fmt::format("--filter: '{}' is no regular expression", arguments.filter));
  }
  if (arguments.what == "ops") {
    list_ops(filter);
    return kDone;
  }
  if (arguments.what == "columns") {
    fmt::print("{}", columns_markdown());
    return kDone;
  }
  if (arguments.what == "variants") {
    list_variants(filter);
    return kDone;
  }
  auto problems =
      load_problems(arguments.problems.empty() ? default_problem_folder() : std::filesystem::path(arguments.problems));
  if (arguments.what == "networks") {
    for (const std::string& name : network_names(problems))
      if (std::regex_search(name, filter)) fmt::print("{}\n", name);
    return kDone;
  }
  if (!arguments.networks.empty()) problems = in_networks(problems, split_list(arguments.networks));
  const auto ops = split_list(arguments.ops);
  for (const std::string& op : ops) (void)require_op(op);
  for (const ProblemEntry& entry : problems) {
    if (!ops.empty() && std::find(ops.begin(), ops.end(), entry.op->name) == ops.end()) continue;
    if (!std::regex_search(entry.op->name + "/" + entry.text, filter)) continue;
    if (arguments.format == "json") {
      // For programs that sweep whole networks in one dtype: totals are of that, without the casts at their ends.
      ProblemEntry swept = entry;
      std::erase_if(swept.uses, [](const auto& use) { return use.dtype.has_value(); });
      if (!swept.uses.empty()) print_json(swept);
    } else
      fmt::print("{} {}  [{}]\n", entry.op->name, entry.text, entry.networks());
  }
  return kDone;
}

}  // namespace

void add_list_command(CLI::App& app, CommandResult result) {
  CLI::App* command = app.add_subcommand("list", "List ops, variants, problems, networks or the columns of sweep.csv");
  auto arguments = std::make_shared<ListArguments>();
  command->add_option("what", arguments->what, "ops, variants, problems, networks or columns")
      ->required()
      ->check(CLI::IsMember({"ops", "variants", "problems", "networks", "columns"}));
  command->add_option("--filter", arguments->filter, "Only names that match this regular expression");
  command->add_option("--ops", arguments->ops, "problems: of these ops");
  command->add_option("--networks", arguments->networks, "problems: of these networks");
  command->add_option("--problems", arguments->problems, "Folder of problem files (default: bench/problems)");
  command->add_option("--format", arguments->format, "problems: text or json (one object a line)")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->callback([=] { *result = [=] { return list(*arguments); }; });
}

}  // namespace noisefloor
