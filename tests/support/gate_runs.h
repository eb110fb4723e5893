// What tests of the gate share.
#pragma once

#include "reports/gate/gate.h"
#include "tests/support/refusal.h"
#include "tests/support/synthetic_run.h"

namespace noisefloor {

using Rows = std::vector<SyntheticRow>;

inline Rows rows_of(std::size_t count, double us, double noise = 0.004) {
  Rows rows(count);
  for (SyntheticRow& row : rows) row.us = us, row.noise = noise;
  return rows;
}

// The run, had every launch taken so many times as long.
inline RunFiles times(RunFiles run, double factor) {
  for (auto& [id, samples] : run.samples)
    for (auto* us : {&samples.cold_us, &samples.warm_us})
      for (double& one : *us) one *= factor;
  for (SweepRow& row : run.rows) {
    for (auto* us : {&row.time_cold_us, &row.time_warm_us, &row.time_warm_serial_us})
      if (*us) *us = **us * factor;
  }
  return run;
}

inline RunFiles without_clock(RunFiles run) {
  for (SweepRow& row : run.rows) row.sm_clock_mhz = row.warm_clock_mhz = std::nullopt;
  for (auto& [id, samples] : run.samples) samples.cold_mhz.clear(), samples.warm_mhz.clear();
  return run;
}

}  // namespace noisefloor
