// What tests of the gate share.
#pragma once

#include "reports/gate/gate.h"
#include "tests/support/synthetic_run.h"

namespace noisefloor {

using Rows = std::vector<SyntheticRow>;

inline Rows rows_of(std::size_t count, double us, double spread = 0.004) {
  Rows rows(count);
  for (SyntheticRow& row : rows) row.us = us, row.spread = spread;
  return rows;
}

inline GateResult judged(const RunFiles& a, const RunFiles& b, const std::vector<RunFiles>& noise = {},
                         const GateOptions& options = {}) {
  return gate(a, b, noise, options);
}

inline std::string refusal(const RunFiles& a, const RunFiles& b, const std::vector<RunFiles>& noise = {}) {
  try {
    (void)judged(a, b, noise);
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

}  // namespace noisefloor
