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
  // Throws InvalidInput naming what is wrong: no run, of a newer schema, or of another device, driver or power limit
  // than `facts` (those of env.json) say.
  EarlierRun(const std::filesystem::path& folder, const nlohmann::ordered_json& facts);

  const EarlierRow* find(const CaseId& id) const;  // ok, with a signature; else null
  // Whether a row that could be kept is measured all the same: one in twenty, from a random one on.
  bool is_checked(const CaseId& id);

  std::size_t kept() const { return kept_.size() - checked(); }
  std::size_t checked() const;
  // The checked rows as they were. Those of `now`, the sweep's folder, are to be the same.
  RunFiles checked_before() const;
  RunFiles checked_now(const std::filesystem::path& now) const;

 private:
  RunFiles checked_of(const RunFiles& run) const;

  RunFiles run_;
  std::map<CaseId, EarlierRow> rows_;
  std::map<CaseId, bool> kept_;  // that could be kept, and whether they are checked
  std::size_t next_ = 0;         // to be checked, of those
};

}  // namespace noisefloor
