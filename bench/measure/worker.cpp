#include "bench/measure/worker.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "bench/measure/case_result.h"
#include "reports/run/columns.h"
#include "reports/run/run_files.h"

namespace noisefloor {
namespace {

using Json = nlohmann::json;

// What a launch can take: a nanosecond, a day.
constexpr double kLeastUs = 1e-3, kMostUs = 86400e6;

constexpr double kMostRoundings = 100;  // far above what eager does of any op

[[noreturn]] void throw_failure(const Json& answer) {
  const std::string outcome = answer.at("failed"), reason = answer.at("reason");
  if (outcome == to_string(Outcome::unsupported_problem)) throw LibraryRefused(reason);
  if (outcome == to_string(Outcome::not_built)) throw LibraryMissing(reason);
  if (outcome == to_string(Outcome::out_of_memory)) throw OutOfMemory(reason);
  if (outcome == to_string(Outcome::throttled)) throw Throttled(reason);
  throw std::runtime_error(reason);
}

std::string not_understood(const Json::exception& error) {
  return fmt::format("gave an answer that cannot be understood: {}", error.what());
}

Json question_of(const char* ask, const Case& test_case, std::int64_t most_values) {
  return {{"ask", ask},
          {"variant", test_case.implementation->name},
          {"dtype", to_string(test_case.dtype)},
          {"problem", problem_record(*test_case.entry->workload, test_case.problem, most_values)}};
}

template <class Read>
auto understood(Worker& worker, const Read& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    worker.give_up(not_understood(error));
  }
}

}  // namespace

Worker::Worker(std::string name, ChildCommand command, WorkerOptions options)
    : name_(std::move(name)), command_(std::move(command)), options_(std::move(options)) {}

Worker::~Worker() = default;

Json Worker::receive(double seconds) {
  const std::string line = receive_line(seconds);
  Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (answer.is_object()) return answer;
  constexpr std::size_t kShown = 80;
  throw WorkerGone(fmt::format("answered '{}', which is not a JSON object", line.substr(0, kShown)));
}

void Worker::start() {
  if (failed_starts_ == kMostStarts) throw LibraryMissing(why_not_started_);
  try {
    if (options_.before_start) options_.before_start();
    complaints_.clear();
    child_ = std::make_unique<ChildProcess>(command_, ChildRole::worker);
    const Json hello = receive(options_.start_seconds);
    if (hello.contains("failed")) throw WorkerGone(hello.at("reason"));
    facts_.clear();
    for (const auto& [name, value] : hello.at("facts").items()) facts_.emplace_back(name, value);
  } catch (const std::exception& error) {
    child_.reset();
    ++failed_starts_;
    why_not_started_ = fmt::format("{} cannot be started: {}", name_, error.what());
    throw WorkerGone(why_not_started_);
  }
  failed_starts_ = 0;
}

const Worker::Facts& Worker::facts() {
  if (!child_) start();
  return facts_;
}

Json Worker::ask(const Json& question, double seconds) {
  if (!child_) start();
  Json answer;
  try {
    Json numbered = question;
    numbered["number"] = ++number_;
    send(numbered.dump());
    answer = receive(seconds);
    if (answer.value("number", Json()) != number_) throw WorkerGone("answered another question");
  } catch (const WorkerGone& error) {
    give_up(error.what());
  }
  try {
    if (answer.value("lost", false)) child_.reset();
    if (!answer.contains("failed")) return answer;
    throw_failure(answer);
  } catch (const Json::exception& error) {
    give_up(not_understood(error));
  }
}

void Worker::give_up(const std::string& why) {
  child_.reset();
  throw WorkerGone(fmt::format("{} {}", name_, why));
}

WorkerCase::WorkerCase(Worker& worker, const Case& test_case, Platform* platform)
    : Contender(platform),
      worker_(&worker),
      tolerance_(test_case.entry->workload->tolerance(test_case.problem, test_case.dtype)),
      of_plugin_(!test_case.implementation->plugin.empty()) {
  make_ready(question_of("ready", test_case, worker.options().most_values));
}

WorkerCase::WorkerCase(Worker& worker, const Json& ready, Tolerance tolerance)
    : worker_(&worker), tolerance_(tolerance) {
  make_ready(ready);
}

void WorkerCase::make_ready(const Json& question) {
  const Json answer = worker_->ask(question, worker_->options().ready_seconds);
  verdict_ = understood(*worker_, [&] {
    roundings_ = answer.value("roundings", 1.0);
    if (!(roundings_ >= 1 && roundings_ <= kMostRoundings))
      worker_->give_up(fmt::format("says {} roundings, not 1 to {}", roundings_, kMostRoundings));
    note_ = answer.value("note", "");
    if (answer.contains("peak_memory_bytes")) peak_memory_bytes_ = answer.at("peak_memory_bytes").get<long>();
    algorithm_ = answer.value("algorithm", "");
    lossy_ = answer.value("lossy", "");
    if (!lossy_.empty()) tolerance_ = {answer.at("allowed").at("max"), answer.at("allowed").at("l2")};
    if (!lossy_.empty()) roundings_ = 1;
    return judged(answer);
  });
}

WorkerCase::~WorkerCase() {
  if (!worker_->running()) return;
  try {
    worker_->ask({{"ask", "release"}}, worker_->options().answer_seconds);
  } catch (const std::exception&) {  // gone: so is what it held
  }
}

// The op's tolerance foresees one rounding. Of several, each may cost an element as much again, and half more where
// large terms cancel; over a whole output independent errors add in squares, which tells a wrong formula from rounding.
Verdict WorkerCase::judged(const Json& answer) const {
  Verdict verdict;
  verdict.tolerance = tolerance_.max_error * (1 + 1.5 * (roundings_ - 1));
  verdict.l2_tolerance = tolerance_.l2_error * std::sqrt(roundings_);
  verdict.note = answer.value("judged", "");
  verdict.reason = answer.value("wrong", "");
  const Json errors = answer.value("errors", Json::array());
  if (errors.empty() && verdict.note.empty() && verdict.reason.empty()) verdict.reason = "its outputs were not judged";
  if (errors.empty()) verdict.max_rel_error = std::numeric_limits<double>::quiet_NaN();
  const auto number = [](const Json& error, const char* name) {
    return error.at(name).is_null() ? std::numeric_limits<double>::quiet_NaN() : error.at(name).get<double>();
  };
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const double largest = number(errors[i], "max"), l2 = number(errors[i], "l2");
    if (!(largest <= verdict.max_rel_error)) verdict.max_rel_error = largest;  // NaN stays
    if (!(l2 <= verdict.l2_error)) verdict.l2_error = l2;
    if (!verdict.reason.empty()) continue;
    if (!(largest >= 0 && l2 >= 0) && !std::isnan(largest) && !std::isnan(l2))
      verdict.reason = fmt::format("output {}: errors below 0", i);
    else if (!(largest <= verdict.tolerance))
      verdict.reason = fmt::format("output {}: error {:.3g}, allowed {:.3g}", i, largest, verdict.tolerance);
    else if (!(l2 <= verdict.l2_tolerance))
      verdict.reason = fmt::format("output {}: relative L2 error {:.3g}, allowed {:.3g}", i, l2, verdict.l2_tolerance);
  }
  return verdict;
}

Verdict WorkerCase::ask_verdict(const char* question) {
  const Json answer = worker_->ask({{"ask", question}}, worker_->options().answer_seconds);
  return understood(*worker_, [&] { return judged(answer); });
}

void WorkerCase::poison(std::size_t) {
  worker_->ask({{"ask", "poison"}}, worker_->options().answer_seconds);
}

std::optional<std::string> ask_signature(Worker& worker, const Case& test_case, std::string* refuses) {
  try {
    const Json answer =
        worker.ask(question_of("signature", test_case, /*most_values=*/0), worker.options().ready_seconds);
    const std::string text = answer.value("signature", "");
    return text.empty() ? std::nullopt : std::optional(text);
  } catch (const WorkerGone&) {
    throw;
  } catch (const LibraryRefused& refused) {
    if (refuses != nullptr) *refuses = refused.what();
    return std::nullopt;
  } catch (const std::exception&) {  // it does not know the question, or its answer is no text
    return std::nullopt;
  }
}

void measure_whole(Worker& worker, const Case& test_case, CounterMode counters, std::uint64_t seed,
                   CaseResult& result) {
  Json question = question_of("measure", test_case, worker.options().most_values);
  question["counters"] = to_string(counters);
  question["seed"] = seed;
  const Json answer = worker.ask(question, worker.options().whole_seconds);
  CaseResult read = result;
  SweepRow& row = read.row;
  try {
    for (const SweepColumn& column : sweep_columns())
      if (const std::string text = answer.at("row").value(column.name, ""); !text.empty())
        if (column.write(row).empty() || std::string_view(column.name) == "status") column.read(column, row, text);
    SamplesLine line = parse_samples_line(answer.at("samples").get<std::string>());
    if (!(line.id == test_case.id())) throw std::runtime_error("it is of another case, " + line.id.name());
    if (row.status == Outcome::ok && !(row.time_cold_us && row.time_warm_us && row.tolerance && row.samples))
      throw std::runtime_error("an ok row without its times, samples or tolerance");
    read.samples = std::move(line.samples);
    read.note = answer.value("note", "");
    read.verdict.l2_error = answer.at("l2_error").is_null() ? 0 : answer.at("l2_error").get<double>();
    read.verdict.l2_tolerance = answer.at("l2_tolerance");
  } catch (const std::runtime_error& error) {
    worker.give_up(fmt::format("gave a row that cannot be understood: {}", error.what()));
  } catch (const Json::exception& error) {
    worker.give_up(not_understood(error));
  }
  read.verdict.max_rel_error = row.max_rel_error.value_or(0);
  read.verdict.tolerance = row.tolerance.value_or(0);
  result = std::move(read);
}

std::vector<double> WorkerCase::times(const Json& question, int samples) {
  const Json answer = worker_->ask(question, worker_->options().answer_seconds);
  const auto times = understood(*worker_, [&] {
    if (answer.contains("mhz")) mhz_ = answer.at("mhz").get<double>();
    return answer.at("us").get<std::vector<double>>();
  });
  if (static_cast<int>(times.size()) != samples)
    worker_->give_up(fmt::format("gave {} times instead of {}", times.size(), samples));
  for (const double time : times)
    if (!(time > kLeastUs && time < kMostUs)) worker_->give_up(fmt::format("gave a time of {} us", time));
  return times;
}

std::vector<double> WorkerCase::cold(int samples) {
  return times({{"ask", "cold"}, {"samples", samples}}, samples);
}

std::vector<double> WorkerCase::warm(int samples, int repeats, Edges) {
  return times({{"ask", "warm"}, {"samples", samples}, {"repeats", repeats}}, samples);
}

}  // namespace noisefloor
