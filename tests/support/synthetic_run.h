// Runs that no sweep made, for tests of what reads them: rows with samples around a given time.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "reports/run/files.h"
#include "reports/run/run_files.h"
#include "reports/run/statistics.h"

namespace noisefloor {

// A row that is ok, of the device and commit that runs of these tests have.
inline SweepRow ok_row(const CaseId& id, const std::string& kind, double cold_us, std::optional<double> warm_us = {}) {
  SweepRow row;
  static_cast<CaseId&>(row) = id;
  row.kind = kind, row.status = Outcome::ok, row.device = "Test GPU", row.commit = "abc";
  row.time_cold_us = cold_us, row.time_warm_us = warm_us;
  return row;
}

struct SyntheticRow {
  double us = 100;                     // the true median, cold
  std::optional<double> warm_us = {};  // warm with ordinary edges; else 0.8 of that
  bool serial = true;                  // an older folder has no such times
  double noise = 0.004;                // relative standard deviation of a sample
  double batch = 0.001;                // and of a whole batch
  double mhz = 1980;
  std::size_t samples = 50, per_batch = 10;
  std::string op = "gemm", variant = "ptx", dtype = "bf16", network = "net-b1";
  Outcome status = Outcome::ok;
  std::string throttle = {};
  std::vector<std::string> kernels = {};
};

// Row i is the problem m=<i+1>,n=64,k=64 with these samples; the same `seed` gives the same noise.
inline RunFiles synthetic_run(const std::vector<SyntheticRow>& wanted, unsigned seed, const std::string& commit = "abc",
                              const std::string& device = "Test GPU") {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  RunFiles run;
  run.folder = "synthetic";
  run.environment.schema = kRunSchema;
  run.environment.device = device;
  run.environment.commit = commit;
  run.environment.time_utc = fmt::format("2026-01-01T00:00:00.{}Z", seed);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const SyntheticRow& want = wanted[i];
    SweepRow row = ok_row({{want.op, fmt::format("m={},n=64,k=64", i + 1), want.dtype}, want.variant}, "ptx", want.us);
    row.networks = want.network + ":2", row.status = want.status, row.device = device, row.commit = commit;
    row.flops = 1e6, row.bytes = 1e5;
    if (want.status == Outcome::ok) {
      RowSamples samples;
      const auto take = [&](double median_us, std::vector<double>& us, std::vector<std::size_t>& batches,
                            std::vector<double>& mhz) {
        double batch = 0;
        for (std::size_t s = 0; s < want.samples; ++s) {
          if (s % want.per_batch == 0) {
            batch = want.batch * normal(random);
            batches.push_back(0);
            mhz.push_back(want.mhz);
          }
          ++batches.back();
          us.push_back(median_us * std::max(0.1, 1 + batch + want.noise * normal(random)));
        }
      };
      take(want.us, samples.cold_us, samples.cold_batches, samples.cold_mhz);
      take(want.warm_us.value_or(0.8 * want.us), samples.warm_us, samples.warm_batches, samples.warm_mhz);
      if (want.serial) row.time_warm_serial_us = median(samples.warm_us);
      samples.kernels = want.kernels;
      samples.kernel_counts.assign(want.kernels.size(), 1);
      row.throttle = want.throttle;
      row.warm_clock_mhz = want.mhz;
      row.time_cold_us = median(samples.cold_us);
      row.time_cold_mad_us = median_absolute_deviation(samples.cold_us);
      row.time_warm_us = median(samples.warm_us);
      row.samples = static_cast<long>(want.samples);
      row.stop = "converged";
      row.sm_clock_mhz = want.mhz;
      run.samples.emplace(row, std::move(samples));
    }
    run.rows.push_back(std::move(row));
  }
  return run;
}

inline std::string sweep_text(const std::vector<SweepRow>& rows) {
  const auto others = other_columns(rows);
  std::string text = sweep_csv_header(others);
  for (const SweepRow& row : rows) text += to_csv(row, others);
  return text;
}

}  // namespace noisefloor
