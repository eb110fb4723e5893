// The sides of `noisefloor ab --python`: baselines/pytorch/ab_worker.py in the Pythons of two environments.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/platform/refusal.h"
#include "bench/sweep/alternate.h"
#include "bench/sweep/problem_files.h"

namespace noisefloor {
namespace {

using Json = nlohmann::json;

std::string python_of(const std::string& environment) {
  const char* const named = std::getenv("NOISEFLOOR_PYTHON");
  if (environment.empty()) return named != nullptr && *named != '\0' ? named : "python3";
  const fs::path path = fs::is_directory(environment) ? fs::path(environment) / "bin/python3" : fs::path(environment);
  if (!fs::is_regular_file(path))
    throw refusal("--python {}: no Python, nor a virtual environment's folder with bin/python3", environment);
  return fs::absolute(path).string();  // links stay: by its place Python finds its packages
}

// Of one launch: what "look" says, and its distance from what it is held to.
std::pair<Json, double> looked(Worker& side, const PairedCase& one) {
  const auto ready = one.make_ready(side);
  if (!ready->verdict().correct()) throw std::runtime_error(ready->verdict().reason);
  return {side.ask({{"ask", "look"}}, side.options().ready_seconds), ready->verdict().l2_error};
}

std::string kernels_without(const Json& one, const Json& other) {
  const auto names = [](const Json& answer) { return answer.at("kernels").get<std::set<std::string>>(); };
  const std::set<std::string> mine = names(one), theirs = names(other);
  std::vector<std::string> alone;
  std::ranges::set_difference(mine, theirs, std::back_inserter(alone));
  return alone.empty() ? "-" : fmt::format("{}", fmt::join(alone, ", "));
}

}  // namespace

ChildCommand python_side(const std::string& given, const std::string& file, const fs::path& kept, const char* which) {
  const fs::path script = default_problem_folder().parent_path().parent_path() / "baselines/pytorch/ab_worker.py";
  const std::size_t at = fs::exists(given) ? std::string::npos : given.rfind('@');
  const std::string revision = at == std::string::npos ? "" : given.substr(at + 1);
  if (at != std::string::npos && revision.empty()) throw refusal("--python {}: no revision behind @", given);
  return {
      {python_of(given.substr(0, at)), script.string(), fs::absolute(file).string(), kept.string(), which, revision},
      {{"PYTHONHASHSEED", "0"}}};
}

std::vector<PairedCase> cases_of(Worker& old_side, Worker& new_side) {
  std::vector<PairedCase> cases;
  for (Worker* side : {&old_side, &new_side}) {
    const Json answer = side->ask({{"ask", "cases"}}, side->options().start_seconds);
    for (const Json& one : answer.at("cases")) {
      const std::string variant = one.at("variant"), problem = one.at("problem");
      const std::string name = problem.empty() ? variant : fmt::format("{}/{}", variant, problem);
      if (std::ranges::any_of(cases, [&](const PairedCase& known) { return known.name == name; })) continue;
      const Json question = {{"ask", "ready"}, {"variant", variant}, {"problem", problem}};
      const Tolerance tolerance{std::numeric_limits<double>::infinity(), one.at("tolerance").get<double>()};
      cases.push_back(
          {name, [=](Worker& worker) { return std::make_unique<WorkerCase>(worker, question, tolerance); }});
    }
  }
  return cases;
}

std::vector<std::vector<std::string>> differences(Worker& old_side, Worker& new_side,
                                                  const std::vector<PairedCase>& cases) {
  std::vector<std::vector<std::string>> table{{"case", "outputs", "kernels gone", "kernels new"}};
  for (const PairedCase& one : cases) {
    try {
      const auto [older, was] = looked(old_side, one);
      const auto [newer, is] = looked(new_side, one);
      std::string outputs = "the same bits";
      if (older.at("outputs") != newer.at("outputs"))
        outputs = newer.at("reference").get<bool>() ? fmt::format("{:.2e} from the reference, was {:.2e}", is, was)
                                                    : fmt::format("{:.2e} from the old ones", is);
      table.push_back({one.name, outputs, kernels_without(older, newer), kernels_without(newer, older)});
    } catch (const std::exception& error) {
      constexpr std::size_t kMost = 100;
      table.push_back({one.name, fmt::format("not seen: {}", std::string(error.what()).substr(0, kMost)), "-", "-"});
    }
  }
  return table;
}

}  // namespace noisefloor
