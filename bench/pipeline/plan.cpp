#include "bench/pipeline/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "bench/measure/bound_case.h"
#include "bench/measure/case_runner.h"
#include "bench/measure/verify.h"
#include "reports/csv.h"

namespace noisefloor::pipeline {
namespace {

constexpr int kTimings = 5, kRepeats = 10;
constexpr std::uint64_t kSeed = 1;

std::string key_of(const std::string& op, const std::string& dtype, const std::string& text) {
  return op + "|" + dtype + "|" + text;
}
std::string key_of(const CountedProblem& problem) {
  return key_of(problem.op->name, to_string(problem.dtype), problem.text);
}

enum class Pool { own, baseline, all };

bool in_pool(const Candidate& candidate, Pool pool, bool host) {
  if ((candidate.kind == Kind::host) != host) return false;
  return pool == Pool::all || (candidate.baseline != nullptr) == (pool == Pool::baseline);
}

std::optional<SweepRow> why_not(Platform& platform, const CountedProblem& problem, const Candidate& candidate) {
  const Case test_case{candidate, problem.op->parse(problem.text), problem.dtype, problem.text, ""};
  return refused(test_case, platform.description(), platform.arch_text());
}

double warm_time(Platform& platform, const CountedProblem& problem, const Candidate& candidate, std::string& why) {
  try {
    Fixture fixture(platform, *problem.op, problem.op->parse(problem.text), problem.dtype, kSeed);
    Verifier verifier(fixture);
    BoundCase bound(fixture, candidate);
    if (const Verdict verdict = verifier.verify(bound); !verdict.correct) {
      why = "incorrect: " + verdict.reason;
      return -1;
    }
    std::vector<double> times = platform.time_warm(bound.launch(/*overlapping=*/true), kTimings, kRepeats);
    std::nth_element(times.begin(), times.begin() + kTimings / 2, times.end());
    return times[kTimings / 2];
  } catch (const DeviceError& error) {
    if (error.lost()) throw;
    why = error.what();
  } catch (const std::exception& error) {  // a library's refusal, no memory: this candidate is out, others may do
    why = error.what();
  }
  return -1;
}

// The fastest correct candidate of a pool; nullopt when none runs the problem. `best_time` is 0 where it had no rival.
std::optional<Candidate> fastest(Platform& platform, const CountedProblem& problem, Pool pool,
                                 std::vector<std::string>& refusals, double& best_time) {
  std::vector<Candidate> able;
  for (const Candidate& candidate : candidates_of(*problem.op)) {
    if (!in_pool(candidate, pool, platform.description().is_host)) continue;
    if (const auto row = why_not(platform, problem, candidate))
      refusals.push_back(candidate.name + ": " + row->reason);
    else
      able.push_back(candidate);
  }
  if (able.size() == 1 && able.front().baseline == nullptr) return able.front();
  std::optional<Candidate> best;
  for (const Candidate& candidate : able) {
    std::string why;
    const double time = warm_time(platform, problem, candidate, why);
    if (!(time > 0)) {
      refusals.push_back(candidate.name + ": " + why);
      continue;
    }
    if (best && best_time <= time) continue;
    best = candidate;
    best_time = time;
  }
  return best;
}

using Entries = std::map<std::string, std::string>;  // key -> variant

Entries read_plan(const std::filesystem::path& file) {
  Entries entries;
  try {
    const CsvFile csv = read_csv(file);
    if (csv.header != std::vector<std::string>{"op", "dtype", "problem", "variant"})
      throw std::runtime_error(fmt::format("its columns are {}", fmt::join(csv.header, ",")));
    for (const CsvLine& line : csv.lines)
      entries[key_of(line.fields[0], line.fields[1], line.fields[2])] = line.fields[3];
  } catch (const std::runtime_error& error) {
    throw InvalidInput(
        fmt::format("{} is no plan (own, baseline, fastest, or a file with the columns op,dtype,problem,variant): {}",
                    file.string(), error.what()));
  }
  return entries;
}

void require_device(const std::filesystem::path& file, const PlatformDescription& description) {
  const std::filesystem::path environment = file.parent_path() / "env.json";
  std::ifstream stream(environment);
  if (!stream) return;
  const auto json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("device")) return;
  const auto& device = json["device"];
  const std::string name = device.is_string() ? device.get<std::string>() : device.value("name", "");
  if (!name.empty() && name != description.name)
    throw InvalidInput(fmt::format("{} is a plan for {}, and this is {}", file.string(), name, description.name));
}

void write_back(const std::filesystem::path& file, const Entries& entries) {
  std::string text = "op,dtype,problem,variant\n";
  for (const auto& [key, variant] : entries) {
    const std::size_t first = key.find('|'), second = key.find('|', first + 1);
    text += fmt::format("{},{},{},{}\n", key.substr(0, first), key.substr(first + 1, second - first - 1),
                        quote_csv(key.substr(second + 1)), variant);
  }
  write_atomically(file, text);
}

}  // namespace

Plan::Plan(Platform& platform, const std::vector<CountedProblem>& problems, const Options& options) {
  const bool named = options.source != "own" && options.source != "baseline" && options.source != "fastest";
  Entries entries;
  if (named) {
    entries = read_plan(options.source);
    require_device(options.source, platform.description());
  }
  std::vector<std::string> wrong;
  std::vector<const CountedProblem*> open;
  for (const CountedProblem& problem : problems) {
    const auto entry = entries.find(key_of(problem));
    if (entry == entries.end()) {
      open.push_back(&problem);
      continue;
    }
    const auto candidates = candidates_of(*problem.op);
    const auto chosen = std::find_if(candidates.begin(), candidates.end(),
                                     [&](const Candidate& candidate) { return candidate.name == entry->second; });
    if (chosen == candidates.end())
      wrong.push_back(
          fmt::format("{} {}: this build has no variant {}", problem.op->name, problem.text, entry->second));
    else if (const auto row = why_not(platform, problem, *chosen))
      wrong.push_back(
          fmt::format("{} {}: {} cannot run here: {}", problem.op->name, problem.text, chosen->name, row->reason));
    else
      choices_[key_of(problem)] = *chosen;
  }
  if (!wrong.empty()) throw InvalidInput(fmt::format("plan {}:\n  {}", options.source, fmt::join(wrong, "\n  ")));
  if (options.strict && !open.empty()) {
    std::vector<std::string> names;
    for (const CountedProblem* problem : open) names.push_back(problem->op->name + " " + problem->text);
    throw InvalidInput(fmt::format("plan {} does not name, and --strict forbids to measure:\n  {}", options.source,
                                   fmt::join(names, "\n  ")));
  }

  const Pool pool = options.source == "own" ? Pool::own : options.source == "baseline" ? Pool::baseline : Pool::all;
  const bool chatty = !platform.description().is_host;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const CountedProblem& problem = *open[i];
    std::vector<std::string> refusals;
    double time = 0;
    std::optional<Candidate> best = fastest(platform, problem, pool, refusals, time);
    if (!best && pool == Pool::baseline) best = fastest(platform, problem, Pool::own, refusals, time);
    if (!best)
      throw InvalidInput(fmt::format("nothing here runs {} {} {}:\n  {}", problem.op->name, to_string(problem.dtype),
                                     problem.text, fmt::join(refusals, "\n  ")));
    if (chatty)
      fmt::print(stderr, "[{}/{}] {} {}: {}\n", i + 1, open.size(), problem.op->name, problem.text, best->name);
    entries[key_of(problem)] = best->name;
    choices_[key_of(problem)] = *best;
    if (time > 0) warm_us_[key_of(problem)] = time;
  }
  if (named && !open.empty()) write_back(options.source, entries);
}

const Candidate& Plan::operator()(const Op& op, DType dtype, const std::string& text) const {
  return choices_.at(key_of(op.name, to_string(dtype), text));
}

std::optional<double> Plan::warm_us(const Op& op, DType dtype, const std::string& text) const {
  const auto time = warm_us_.find(key_of(op.name, to_string(dtype), text));
  return time == warm_us_.end() ? std::nullopt : std::optional(time->second);
}

}  // namespace noisefloor::pipeline
