// noisefloor list: what there is to sweep.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/commands/commands.h"
#include "bench/measure/suite.h"
#include "bench/pipeline/network_tensors.h"
#include "bench/sweep/problem_files.h"
#include "bench/sweep/suite.h"
#include "bench/sweep/workers.h"
#include "kernels/sampler_step/solvers.h"
#include "reports/explain/explain.h"
#include "reports/run/columns.h"

namespace noisefloor {
namespace {

using Json = nlohmann::ordered_json;

struct ListArguments {
  std::string what, filter, ops, networks, problems, format = "text";
  std::vector<std::string> plugins;
};

struct Wanted {
  NameFilter filter;
  std::vector<std::string> ops;  // none: all
  bool json = false;             // one object a line
  bool matched = false;          // a name, by the filter

  bool has(const Workload& op) const { return ops.empty() || std::find(ops.begin(), ops.end(), op.name) != ops.end(); }
  bool has(const std::string& name) {
    const bool found = filter(name);
    matched = matched || found;
    return found;
  }
  bool has(const Workload& op, const std::string& name) { return has(op) && has(name); }
};

void print_line(const Wanted& wanted, const Json& line, const std::string& text) {
  fmt::print("{}\n", wanted.json ? line.dump() : text);
}

Json json_of(const FieldInfo& field) {
  Json json = {{"name", field.name}, {"type", to_string(field.type)}, {"meaning", field.meaning}};
  if (field.chosen())
    json["choices"] = field.choices;
  else if (field.type == FieldInfo::Type::real)
    json.update({{"low", field.real_low}, {"high", field.real_high}});
  else
    json.update({{"low", field.low}, {"high", field.high}});
  if (field.fallback) json["default"] = *field.fallback;
  return json;
}

// Its shape in formulas of the fields; a tensor whose shape has several forms is there for each, `when` it has it.
Json json_of(const TensorRule& tensor) {
  constexpr const char* kRoles[] = {"in", "out", "inout"};
  return {{"name", tensor.name},
          {"shape", tensor.shape},
          {"dtype", tensor.dtype ? to_string(*tensor.dtype) : "the row's"},
          {"role", kRoles[static_cast<int>(tensor.role)]},
          {"meaning", tensor.meaning},
          {"when", tensor.condition}};
}

Json json_of(const SuiteEntry& entry, const Implementation& one) {
  Json json = {{"op", entry.name()},
               {"variant", one.name},
               {"kind", one.kind},
               {"arch", to_string(one.arch)},
               {"built", one.built}};
  if (!one.built) json["reason"] = one.why_not_built;
  if (!one.plugin.empty()) json["plugin"] = one.plugin;
  if (one.own() && one.variant()->limit) json["right_for"] = *one.variant()->limit;
  return json;
}

std::vector<std::string> dtype_names(const Workload& op) {
  std::vector<std::string> names;
  for (const DType dtype : op.dtypes) names.push_back(to_string(dtype));
  return names;
}

// Every network, and the pictures that it draws where none are asked for.
Json networks_json() {
  Json all = Json::array();
  for (const networks::NetworkInfo& info : networks::all_networks()) {
    const auto [height, width, side] = pipeline::picture_sides(info);
    Json line = {{"name", info.name}, {"height", height}, {"width", width}, {"multiples_of", side}};
    const auto [least, most] = info.trained_levels();
    if (!info.decodes()) line["noise_levels"] = {least, most};
    all.push_back(line);
  }
  return all;
}

void list_ops(Wanted& wanted) {
  for (const SuiteEntry& entry : suite().entries()) {
    const Workload& op = *entry.workload;
    if (!wanted.has(op, op.name)) continue;
    if (wanted.json) {
      Json fields = Json::array(), symbols = Json::object(), tensors = Json::array(), variants = Json::array();
      for (const FieldInfo& field : op.fields) fields.push_back(json_of(field));
      for (const auto& [name, formula] : symbols_of(op)) symbols[name] = formula;
      for (const TensorRule& tensor : op.table.rules) tensors.push_back(json_of(tensor));
      for (const ImplementationPtr& one : entry.implementations) variants.push_back(json_of(entry, *one));
      Json line = {{"op", op.name},      {"computes", op.computes}, {"dtypes", dtype_names(op)}, {"fields", fields},
                   {"symbols", symbols}, {"tensors", tensors},      {"variants", variants}};
      if (entry.whole_networks) line["networks"] = networks_json();
      fmt::print("{}\n", line.dump());
      continue;
    }
    fmt::print("{}: {} ({})\n", op.name, op.computes, fmt::join(dtype_names(op), ", "));
    for (const FieldInfo& field : op.fields) fmt::print("  {}: {}\n", field.name, field.description());
    for (const auto& [name, formula] : symbols_of(op)) fmt::print("  {} = {}\n", name, formula);
    for (const TensorRule& tensor : op.table.rules) fmt::print("  {}\n", description_of(tensor));
  }
}

void list_variants(Wanted& wanted) {
  constexpr const char* kLine = "{:<18} {:<26} {:<12} {:<8} {}";
  if (!wanted.json) fmt::print("{}\n", fmt::format(kLine, "op", "variant", "kind", "arch", "built  right for"));
  for (const SuiteEntry& entry : suite().entries())
    for (const ImplementationPtr& one : entry.implementations) {
      if (!wanted.has(*entry.workload, entry.name() + "/" + one->name)) continue;
      const AnyVariant* const ours = one->own() ? one->variant() : nullptr;
      std::string built = ours && ours->not_written ? one->why_not_built : one->built ? "yes" : "no";
      if (ours && ours->limit) built = fmt::format("{:<6} {}", built, *ours->limit);
      print_line(wanted, json_of(entry, *one),
                 fmt::format(kLine, entry.name(), one->name, one->kind, to_string(one->arch), built));
    }
}

void list_networks(const std::vector<ProblemEntry>& problems, Wanted& wanted) {
  for (const std::string& name : network_names(problems)) {
    if (!wanted.has(name)) continue;
    std::size_t distinct = 0;
    long launches = 0;
    bool set = false, by_name = false;
    for (const ProblemEntry& entry : problems)
      for (const auto& use : entry.uses)
        if (use.network == name) ++distinct, launches += use.count, set = use.set, by_name = use.by_name;
    print_line(wanted, {{"network", name}, {"set", set}, {"problems", distinct}, {"launches", launches}},
               name + (by_name ? "  (a set of problems, not of 'all')"
                       : set   ? "  (a set of problems)"
                               : ""));
  }
}

void list_solvers(Wanted& wanted) {
  using sampler_step::SolverRow;
  for (const SolverRow& row : sampler_step::solvers()) {
    if (!wanted.has(row.name)) continue;
    print_line(wanted,
               {{"solver", row.name},
                {"order", row.order},
                {"calls", row.calls},
                {"latents", SolverRow::kLatentsNames[static_cast<int>(row.latents)]},
                {"noise", SolverRow::kNoiseNames[static_cast<int>(row.noise)]},
                {"history", SolverRow::kHistoryNames[static_cast<int>(row.history)]},
                {"churn", row.churns},
                {"schedule", sampler_step::kScheduleNames[static_cast<int>(row.schedule)]},
                {"source", row.source}},
               fmt::format("{:<10} order {}, {} a step; {}", row.name, row.order, row.calls == 1 ? "1 call" : "2 calls",
                           row.source));
  }
  if (wanted.json) return;  // of networks, `list ops` says it
  std::string levels;
  for (const networks::NetworkInfo& info : networks::all_networks()) {
    if (info.decodes() || !wanted.has(info.name)) continue;
    const auto [least, most] = info.trained_levels();
    levels += fmt::format("{:<13} {:.5g} to {:.5g}\n", info.name, least, most);
  }
  if (!levels.empty())
    fmt::print("\nNoise levels of the networks' training: schedule=karras spans them, no other goes beyond.\n{}",
               levels);
}

void list_columns(Wanted& wanted) {
  if (!wanted.json) {
    fmt::print("{}", columns_markdown([&](const SweepColumn& column) { return wanted.has(column.name); }));
    return;
  }
  for (const SweepColumn& column : sweep_columns())
    if (wanted.has(column.name))
      fmt::print("{}\n", Json{{"column", column.name},
                              {"unit", column.unit},
                              {"text", column.text()},
                              {"needed", column.is(ColumnInfo::kNeeded)},
                              {"counter", column.is(ColumnInfo::kCounter)},
                              {"description", column.description}}
                             .dump());
}

constexpr std::int64_t kMostValues = 4096;  // of a tensor, in a line that people may read

void list_problems(const std::vector<ProblemEntry>& problems, Wanted& wanted) {
  for (const ProblemEntry& entry : problems) {
    if (!wanted.has(entry.op->name + "/" + entry.text)) continue;
    if (!wanted.json) {
      fmt::print("{} {}  [{}]\n", entry.op->name, entry.text, entry.networks());
      continue;
    }
    // For programs that sweep whole networks in one dtype: totals are of that, without the casts at their ends.
    ProblemEntry swept = entry;
    std::erase_if(swept.uses, [](const auto& use) { return use.dtype.has_value(); });
    if (swept.uses.empty()) continue;
    Json line = problem_record(*entry.op, entry.problem, kMostValues);
    line["networks"] = swept.networks();
    fmt::print("{}\n", line.dump());
  }
}

int list(const ListArguments& arguments) {
  Wanted wanted{name_filter("--filter", arguments.filter), split_list(arguments.ops), arguments.format == "json"};
  for (const std::string& op : wanted.ops) (void)require_op(op);
  add_plugins(arguments.plugins, "host");  // names need no GPU
  if (arguments.what == "ops") {
    list_ops(wanted);
  } else if (arguments.what == "variants") {
    list_variants(wanted);
  } else if (arguments.what == "solvers") {
    list_solvers(wanted);
  } else if (arguments.what == "rules") {
    if (!arguments.filter.empty()) throw InvalidInput("--filter: rules have no names to match");
    if (wanted.json) throw InvalidInput("--format: rules are listed as text only, a Markdown table");
    fmt::print("{}", explain_rules_markdown());
  } else if (arguments.what == "columns") {
    list_columns(wanted);
  } else {
    auto problems = load_problems(arguments.problems);
    const auto networks = split_list(arguments.networks);
    const auto named = [&](const std::string& name) { return std::ranges::find(networks, name) != networks.end(); };
    if (!networks.empty()) problems = in_networks(problems, networks);
    std::erase_if(problems, [&](const ProblemEntry& entry) { return !wanted.has(*entry.op); });
    (arguments.what == "networks" ? list_networks : list_problems)(problems, wanted);
    if (arguments.what == "problems" && !wanted.json && wanted.ops.empty())  // programs read the fields of ops
      for (const UnwrittenProblem& one : load_not_written(arguments.problems))
        if ((networks.empty() || named(one.network)) && wanted.has(one.op + "/" + one.problem))
          fmt::print("{} {}  [{}:{}]  not written: {}\n", one.op, one.problem, one.network, one.count, one.why);
  }
  if (!arguments.filter.empty() && !wanted.matched)
    throw refusal("--filter: no name matches '{}'; see noisefloor list {}", arguments.filter, arguments.what);
  return kDone;
}

}  // namespace

void add_list_command(CLI::App& app, CommandResult result) {
  auto [command, arguments] = add_command(
      app, result, "list",
      "List ops, variants, problems, networks, solvers, the columns of sweep.csv or the rules of explain", list);
  command.add_option("what", arguments.what, "ops, variants, problems, networks, solvers, columns or rules")
      ->required()
      ->check(CLI::IsMember({"ops", "variants", "problems", "networks", "solvers", "columns", "rules"}));
  command.add_option("--filter", arguments.filter, "Only names that match this regular expression");
  command.add_option("--ops", arguments.ops, "Only these ops, comma-separated");
  command.add_option("--networks", arguments.networks, "Only these networks (of problems, networks)");
  add_problems_option(command, arguments.problems);
  command.add_option("--format", arguments.format, "text, or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  add_plugin_option(command, arguments.plugins);
}

}  // namespace noisefloor
