#include "bench/measure/case_server.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/measure/case_result.h"
#include "reports/run/columns.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

using Json = nlohmann::json;

Json finite(double value) {
  return std::isnan(value) ? Json() : Json(value);
}

int number(const Json& question, const char* name, int most) {
  const Json& value = question.at(name);
  if (!value.is_number_integer() || value < 1 || value > most)
    throw LibraryRefused(fmt::format("'{}' is {}, not a whole number from 1 to {}", name, value.dump(), most));
  return value;
}

Json told(const Verdict& verdict) {
  Json answer = {{"errors", {{{"max", finite(verdict.max_rel_error)}, {"l2", finite(verdict.l2_error)}}}},
                 {"judged", verdict.note}};
  if (!verdict.correct()) answer["wrong"] = verdict.reason;
  return answer;
}

}  // namespace

Case CaseServer::require_case(const Json& question) const {
  const Json& problem = question.at("problem");
  const std::string op = problem.at("op"), name = question.at("variant"), dtype = question.at("dtype");
  const SuiteEntry* const entry = suite_->find(op);
  if (entry == nullptr) throw LibraryRefused(fmt::format("this build has no op '{}'", op));
  Case found{entry, entry->find(name), {}, DType::bf16, ""};
  if (!found.implementation) throw LibraryRefused(fmt::format("this build has no variant '{}' of {}", name, op));
  const auto known = parse_dtype(dtype);
  if (!known) throw LibraryRefused(fmt::format("this build has no dtype '{}'", dtype));
  found.dtype = *known;
  try {
    found.problem = entry->workload->parse(problem.at("problem").get<std::string>());
  } catch (const InvalidInput& error) {
    throw LibraryRefused(fmt::format("this build does not know the problem: {}", error.what()));
  }
  found.text = entry->workload->print(found.problem);
  if (const auto row = refused(found, platform_->description(), platform_->arch_text()))
    throw LibraryRefused(row->reason);
  return found;
}

// The first inputs, in the first slot.
std::shared_ptr<BoundCase> CaseServer::bind(const Case& wanted) {
  contender_.reset();
  runner_.reset();
  if (!problem_ || !(problem_->id == ProblemId(wanted.id()))) {
    problem_.reset();
    RunnerOptions options;
    options.slots = usual_slots(*platform_);
    problem_ = std::make_unique<MeasuredProblem>(*platform_, wanted, options);
  }
  problem_->fixture.move_to(0);
  problem_->fixture.use_inputs(0);
  poisons_ = 0;
  return std::make_shared<BoundCase>(problem_->fixture, *wanted.implementation, &problem_->verifier, &known_);
}

Json CaseServer::signature(const Json& question) {
  const Case wanted = require_case(question);
  if (const auto known = signatures_.without_launch(wanted, nullptr)) return {{"signature", *known}};
  const std::shared_ptr<BoundCase> bound = bind(wanted);
  throw_if_failed(bound->launch()());  // its kernels are loaded by it
  platform_->synchronize();
  return {{"signature", signatures_.of_launch(*bound)}};
}

Json CaseServer::ready(const Json& question) {
  const std::shared_ptr<BoundCase> bound = bind(require_case(question));
  Verifier& verifier = problem_->verifier;
  of_plugin_ = bound->of_plugin();
  Verdict verdict = verifier.verify(*bound);
  if (verdict.correct() && of_plugin_) verdict = verifier.verify_replay(*bound);
  if (verdict.correct() && of_plugin_) platform_->take_back_l2();  // what making it ready set aside
  Json answer = told(verdict);
  answer["note"] = bound->description();
  if (verdict.correct()) contender_ = std::make_unique<BoundContender>(bound, verifier);
  return answer;
}

Json CaseServer::rows() const {
  Json rows = Json::array();
  for (const SuiteEntry& entry : suite_->entries())
    for (const ImplementationPtr& one : entry.implementations)
      if (!one->plugin.empty())
        rows.push_back(
            {{"op", entry.name()}, {"name", one->name}, {"kind", one->kind}, {"arch", to_string(one->arch)}});
  return {{"rows", rows}};
}

Json CaseServer::measure(const Json& question) {
  contender_.reset();
  problem_.reset();
  const Case wanted = require_case(question);
  const CounterMode counters = parse_counter_mode(question.at("counters"));
  const std::uint64_t seed = question.at("seed");
  if (!runner_ || counters_ != counters || seed_ != seed) {
    RunnerOptions options;
    options.counters = counters_ = counters;
    options.seed = seed_ = seed;
    runner_ = std::make_unique<CaseRunner>(*platform_, nullptr, options);
  }
  const CaseResult result = runner_->run(wanted);
  Json row = Json::object();
  for (const SweepColumn& column : sweep_columns()) row[column.name] = column.write(result.row);
  Json answer = {{"row", row},
                 {"samples", samples_line(result.row, result.samples)},
                 {"l2_error", finite(result.verdict.l2_error)},
                 {"l2_tolerance", result.verdict.l2_tolerance},
                 {"note", result.note}};
  if (result.device_lost) answer["lost"] = true;
  if (result.row.status != Outcome::ok) runner_.reset();  // what it did to the inputs is not the next one's fault
  return answer;
}

Json CaseServer::answer_or_throw(const Json& question) {
  const std::string ask = question.at("ask");
  if (ask == "ready") return ready(question);
  if (ask == "signature") return signature(question);
  if (ask == "rows") return rows();
  if (ask == "touch") {
    (void)platform_->time_edges(1);
    return Json::object();
  }
  if (ask == "measure") return measure(question);
  if (ask == "release") {
    contender_.reset();
    return Json::object();
  }
  if (!contender_) throw LibraryRefused(fmt::format("'{}' without a case that is ready and right", ask));
  constexpr int kMostSamples = 10000, kMostRepeats = 1000;
  const auto samples = [&] { return number(question, "samples", kMostSamples); };
  if (ask == "cold") return {{"us", undisturbed_cold(*contender_, samples())}};
  if (ask == "warm")
    return {{"us", undisturbed_warm(*contender_, samples(), number(question, "repeats", kMostRepeats))}};
  if (ask == "judge") return told(contender_->judge());
  if (ask == "replay") return told(contender_->replay());
  if (ask == "poison") {
    contender_->move_to(poisons_ / 2 % contender_->slots());
    ++poisons_;
    contender_->poison(of_plugin_ ? poisons_ % Fixture::kSets : 0);
    return Json::object();
  }
  throw LibraryRefused(fmt::format("unknown question '{}'", ask));
}

Json CaseServer::answer(const Json& question) {
  try {
    return answer_or_throw(question);
  } catch (const std::exception&) {
    const Failure failure = current_failure();
    Json answer = {{"failed", to_string(failure.outcome)}, {"reason", failure.reason}};
    if (failure.lost) answer["lost"] = true;
    return answer;
  }
}

void serve(CaseServer& server, const Json& facts, std::istream& questions,
           const std::function<void(const std::string& line)>& write) {
  write(Json{{"facts", facts}}.dump());
  for (std::string line; std::getline(questions, line);) {
    const Json question = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    Json answer = server.answer(question);
    if (question.is_object()) answer["number"] = question.value("number", Json());
    write(answer.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
}

}  // namespace noisefloor
