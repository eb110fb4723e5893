// The run whose rows a sweep keeps where they are still true (--reuse).
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/measure/kept_row.h"
#include "reports/run/run_files.h"

namespace noisefloor {

class EarlierRun {
 public:
  // `facts`: of this sweep, as for env.json. Throws InvalidInput naming what is wrong: no run, of a newer schema, or of
  // another device, driver or power limit.
  EarlierRun(const std::filesystem::path& folder, const nlohmann::ordered_json& facts);
  // One row in twenty is chosen, whose cold and warm times are taken anew though it could be kept: by `seed`, which a
  // resumed sweep has, else by the sweep's folder and the run's time. Returns the seed.
  std::string choose_checks(const std::filesystem::path& out, const std::string& seed);

  const EarlierRow* find(const CaseId& id) const;  // what may be kept: ok, with a signature; else null

  // What the sweep made of it: how many rows it kept, and those of the same signature that it timed as checks, as
  // they were and as they are.
  struct Result {
    std::size_t kept = 0;
    RunFiles before, now;
  };
  Result result(const std::filesystem::path& out) const;

 private:
  bool is_check(const CaseId& id) const;

  std::string seed_;
  RunFiles run_;
  std::map<CaseId, EarlierRow> rows_;
};

}  // namespace noisefloor
