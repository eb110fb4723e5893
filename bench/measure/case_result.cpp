#include "bench/measure/case_result.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "bench/counters/kernel_resources.h"
#include "bench/measure/timing.h"

namespace noisefloor {

Failure current_failure() {
  try {
    throw;
  } catch (const LibraryMissing& error) {
    return {Outcome::not_built, error.what()};
  } catch (const LibraryRefused& error) {
    return {Outcome::unsupported_problem, error.what()};
  } catch (const OutOfMemory& error) {
    return {Outcome::out_of_memory, error.what()};
  } catch (const std::bad_alloc&) {
    return {Outcome::out_of_memory, "host memory ran out while verifying or timing"};
  } catch (const Throttled& error) {
    return {Outcome::throttled, error.what()};
  } catch (const DeviceError& error) {
    return {Outcome::cuda_error, error.what(), error.lost()};
  } catch (const std::exception& error) {
    return {Outcome::cuda_error, error.what()};
  }
}

void add_note(const std::string& note, CaseResult& result) {
  if (!note.empty()) result.note += (result.note.empty() ? "" : "; ") + note;
}

void clear_times(CaseResult& result) {
  SweepRow& row = result.row;
  for (auto* field : {&row.time_cold_us, &row.time_cold_mad_us, &row.time_warm_us, &row.time_warm_serial_us,
                      &row.gflops, &row.gbps, &row.attainable_gflops, &row.pct_of_roof})
    field->reset();
  row.bound = {};
}

bool take_verdict(const Verdict& verdict, CaseResult& result) {
  result.verdict = verdict;
  if (std::isfinite(verdict.max_rel_error)) {  // a random result has no error
    result.row.max_rel_error = verdict.max_rel_error;
    result.row.tolerance = verdict.tolerance;
  }
  if (verdict.correct) return true;
  result.row.status = Outcome::incorrect;
  result.row.reason = verdict.reason;
  return false;
}

bool take_last_verdict(const char* phase, const Verdict& verdict, CaseResult& result) {
  if (verdict.correct) return true;
  result.row.status = Outcome::incorrect;
  result.row.reason = fmt::format("after the {} launches: {}", phase, verdict.reason);
  return false;
}

void take_samples(const Timing& timing, CaseResult& result) {
  auto kernels = std::move(result.samples.kernels);
  auto kernel_counts = std::move(result.samples.kernel_counts);
  result.samples = timing;
  result.samples.kernels = std::move(kernels);
  result.samples.kernel_counts = std::move(kernel_counts);
  write_times(timing, result.row);
}

void count_kernels(std::span<const KernelResources> kernels, RowSamples& samples) {
  for (const KernelResources& kernel : kernels) {
    const std::string name = short_kernel_name(kernel.name);
    const auto place = std::ranges::find(samples.kernels, name) - samples.kernels.begin();
    if (static_cast<std::size_t>(place) == samples.kernels.size()) {
      samples.kernels.push_back(name);
      samples.kernel_counts.push_back(0);
    }
    ++samples.kernel_counts[static_cast<std::size_t>(place)];
  }
}

}  // namespace noisefloor
