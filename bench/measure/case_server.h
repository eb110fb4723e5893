// The other end of worker.h's pipe: this program makes cases ready, launches and times them where another one asks.
#pragma once

#include <functional>
#include <istream>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/measure/case_runner.h"
#include "bench/measure/suite.h"

namespace noisefloor {

class CaseServer {
 public:
  // All must outlive it; `code` may be null: launches then have no signatures.
  CaseServer(Platform& platform, const Suite& suite, CodeWatch* code = nullptr)
      : platform_(&platform), suite_(&suite), signatures_(platform, code) {}

  // {"failed": ...} for whatever is wrong.
  nlohmann::json answer(const nlohmann::json& question);

 private:
  nlohmann::json answer_or_throw(const nlohmann::json& question);
  nlohmann::json ready(const nlohmann::json& question);
  nlohmann::json signature(const nlohmann::json& question);
  std::shared_ptr<BoundCase> bind(const Case& wanted);
  nlohmann::json rows() const;
  nlohmann::json measure(const nlohmann::json& question);
  Case require_case(const nlohmann::json& question) const;

  Platform* platform_;
  const Suite* suite_;
  Signatures signatures_;
  KnownTimes known_;
  std::unique_ptr<MeasuredProblem> problem_;  // of the last case that was made ready
  std::unique_ptr<BoundContender> contender_;
  bool of_plugin_ = false;   // its inputs change from block to block
  std::size_t poisons_ = 0;  // two a block, cold and warm, of which each has its tensors in another slot
  // Of whole cases, with the counters and the seed of the last one.
  std::unique_ptr<CaseRunner> runner_;
  CounterMode counters_ = CounterMode::off;
  std::uint64_t seed_ = 0;
};

// Says {"facts": ...}, then answers line by line, until the questions end.
void serve(CaseServer& server, const nlohmann::json& facts, std::istream& questions,
           const std::function<void(const std::string& line)>& write);

}  // namespace noisefloor
