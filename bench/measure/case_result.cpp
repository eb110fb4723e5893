#include "bench/measure/case_result.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <new>

#include "bench/ceilings/ceilings.h"
#include "bench/counters/counter_status.h"
#include "bench/counters/kernel_resources.h"
#include "bench/measure/timing.h"
#include "bench/platform/build_info.h"
#include "bench/platform/platform.h"
#include "reports/run/columns.h"

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
                      &row.time_weights_cold_us, &row.gflops, &row.gbps, &row.attainable_gflops, &row.pct_of_roof})
    field->reset();
  row.bound = {};
}

bool take_verdict(const Verdict& verdict, CaseResult& result) {
  result.verdict = verdict;
  if (std::isfinite(verdict.max_rel_error)) {  // a random result has no error
    result.row.max_rel_error = verdict.max_rel_error;
    result.row.tolerance = verdict.tolerance;
  }
  if (verdict.correct()) return true;
  result.row.status = Outcome::incorrect;
  result.row.reason = verdict.reason;
  return false;
}

void take_samples(const Timing& timing, CaseResult& result) {
  const RowSamples before = std::move(result.samples);
  result.samples = timing;
  result.samples.kernels = before.kernels;
  result.samples.kernel_counts = before.kernel_counts;
  result.samples.launches = before.launches;
  result.samples.launch_counts = before.launch_counts;
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

SweepRow blank_row(const Case& test_case, const PlatformDescription& description, const std::string& arch) {
  SweepRow row;
  static_cast<CaseId&>(row) = test_case.id();
  row.kind = test_case.implementation->kind;
  row.plugin = test_case.implementation->plugin;
  row.networks = test_case.networks;
  row.device = description.name;
  row.gpu_uuid = description.uuid;
  row.arch = arch;
  const Cost cost = test_case.entry->workload->cost(test_case.problem, test_case.dtype);
  row.flops = cost.flops;
  row.bytes = cost.bytes;
  row.ai = cost.flops / cost.bytes;
  row.shortcut = to_string(cost.shortcut);
  row.commit = build_info().commit;
  return row;
}

std::optional<SweepRow> refused(const Case& test_case, const PlatformDescription& description,
                                const std::string& arch) {
  SweepRow row = blank_row(test_case, description, arch);
  const Implementation& implementation = *test_case.implementation;
  if (!implementation.runs_on_platform(description.is_host)) {
    row.status = description.is_host ? Outcome::no_device : Outcome::unsupported_arch;
    row.reason = description.is_host ? "needs a CUDA device" : "runs on the host (--device host)";
  } else if (!implementation.built) {
    row.status = Outcome::not_built;
    row.reason = implementation.why_not_built;
  } else if (!description.is_host && !runs_on(implementation.arch, description.info.compute_capability)) {
    row.status = Outcome::unsupported_arch;
    row.reason = fmt::format("needs {}", to_string(implementation.arch));
  } else if (const Support support = implementation.can_run(test_case.problem, test_case.dtype); !support) {
    row.status = Outcome::unsupported_problem;
    row.reason = support.reason;
  } else {
    return std::nullopt;
  }
  return row;
}

void take_counters(const std::map<std::string, double>& values, std::size_t l2_bytes, SweepRow& row) {
  for (const SweepColumn& column : sweep_columns())
    if (const auto found = values.find(column.name); found != values.end()) column.fill(row, found->second);
  if (!(row.bytes.value_or(0) < static_cast<double>(l2_bytes))) return;
  row.dram_read_bytes.reset();
  row.dram_write_bytes.reset();
  row.counter_status = to_string(CounterStatus::ok_below_l2);
}

void take_resources(const KernelResources& kernel, SweepRow& row) {
  row.registers = kernel.registers;
  row.smem_bytes = static_cast<long>(kernel.shared_bytes());
  row.spill_bytes = static_cast<long>(kernel.local_bytes);
  row.occupancy_limit_pct = kernel.occupancy_limit_pct;
  row.occupancy_limiter = kernel.occupancy_limiter;
  row.blocks = kernel.blocks();
  row.threads = kernel.threads();
  row.waves = kernel.waves;
}

double seconds_by_roof(const Case& test_case, const Ceilings& ceilings) {
  const Cost cost = test_case.entry->workload->cost(test_case.problem, test_case.dtype);
  return 1e-9 * std::max(cost.flops / ceilings.compute(cost.pipe, test_case.dtype).value,
                         cost.bytes / ceilings.memory().value);
}

namespace {

// What share of the arithmetic ceiling large products, convolutions and attention reach, about as the published rows of
// an H200 (naive 0.05 to 0.1 %, tiled 2 to 4, tensor_core 20 to 45), and the longest launch to measure, in seconds.
struct Pace {
  double share = 0.5, longest = 1;
};

Pace usual_pace(const Implementation& one) {
  if (one.is(Kind::naive)) return {0.001, 0.1};
  if (one.is(Kind::tiled)) return {0.02, 0.1};
  if (one.is(Kind::tensor_core) || one.is(Kind::host)) return {0.25, 0.1};
  return {};
}

constexpr double kUsualShareOfOthers = 0.2;  // memory, and arithmetic beside tensor cores

}  // namespace

std::optional<SweepRow> too_long(const Case& test_case, const Ceilings& ceilings,
                                 const PlatformDescription& description, const std::string& arch) {
  if (!test_case.brief) return std::nullopt;
  const Cost cost = test_case.entry->workload->cost(test_case.problem, test_case.dtype);
  const auto [share, longest] = usual_pace(*test_case.implementation);
  const double rate =
      ceilings.compute(cost.pipe, test_case.dtype).value * (cost.pipe == Pipe::tensor ? share : kUsualShareOfOthers);
  const double seconds =
      1e-9 * std::max(cost.flops / rate, cost.bytes / (ceilings.memory().value * kUsualShareOfOthers));
  if (seconds <= longest) return std::nullopt;
  SweepRow row = blank_row(test_case, description, arch);
  row.status = Outcome::unsupported_problem;
  row.reason = fmt::format(
      "left out: a launch is predicted to take {:.2g} s; above {} s {} is measured where --variants names it", seconds,
      longest, row.variant);
  return row;
}

std::string why_above_roof(const Cost& cost, double written_bytes, bool memory_bound, std::size_t cache_bytes) {
  std::vector<std::string> reasons;
  if (cost.shortcut != Shortcut::none) reasons.push_back(fmt::format("shortcut {}", to_string(cost.shortcut)));
  if (memory_bound && cost.bytes > 2 * written_bytes)
    reasons.emplace_back("it reads more than it writes, and the roof is that of a copy");
  if (memory_bound && written_bytes < static_cast<double>(cache_bytes))
    reasons.emplace_back("what it writes fits into cache");
  if (reasons.empty()) reasons.emplace_back("the ceiling was measured lower");
  return fmt::format("{}", fmt::join(reasons, "; "));
}

double written_bytes(const Workload& workload, const AnyProblem& problem, DType dtype) {
  double written = 0;
  for (const TensorSpec& spec : workload.tensors(problem, dtype))
    if (spec.role != Role::in) written += static_cast<double>(spec.bytes());
  return written;
}

void place_under_roof(const Case& test_case, const Ceilings& ceilings, std::size_t cache_bytes, SweepRow& row) {
  const Cost cost = test_case.entry->workload->cost(test_case.problem, test_case.dtype);
  const Ceiling& compute = ceilings.compute(cost.pipe, test_case.dtype);
  noisefloor::place_under_roof(row, ceilings.memory(), compute);
  row.above_roof.clear();
  const double written = written_bytes(*test_case.entry->workload, test_case.problem, test_case.dtype);
  if (*row.pct_of_roof > 100)
    row.above_roof = why_above_roof(cost, written, row.bound.by == Bound::By::memory, cache_bytes);
  // What is lossy may read and multiply fewer bits than the problem's.
  const Ceiling* const eight_bits = row.lossy.empty() ? nullptr : ceilings.find("tensor_fp8");
  Cost least = cost;
  if (!row.lossy.empty()) least.bytes = written + (cost.bytes - written) / 2;
  if (std::string why = why_implausible(least, written, *row.time_cold_us, ceilings.reads(),
                                        eight_bits != nullptr ? *eight_bits : compute);
      !why.empty()) {
    row.status = Outcome::implausible;
    row.reason = std::move(why);
  }
}

std::string why_implausible(const Cost& cost, double written_bytes, double cold_us, const Ceiling& reads,
                            const Ceiling& compute) {
  constexpr double kOfLeast = 0.95;  // ceilings are measured, too
  const double read_us = 1e-3 * (cost.bytes - written_bytes) / reads.value,
               compute_us = 1e-3 * cost.flops / compute.value;
  if (!(cold_us < kOfLeast * std::max(read_us, compute_us))) return {};
  if (read_us > compute_us)
    return fmt::format("a cold launch took {:.4g} us, but what it must read takes {:.4g} us at {:.4g} GB/s ({})",
                       cold_us, read_us, reads.value, reads.name);
  return fmt::format("a cold launch took {:.4g} us, but its arithmetic takes {:.4g} us at {:.4g} GFLOP/s ({})", cold_us,
                     compute_us, compute.value, compute.name);
}

namespace {

template <class... Members>
void keep_members(const Timing& from, Timing& to, Members... members) {
  ((to.*members = from.*members), ...);
}

}  // namespace

void keep_row(const EarlierRow& earlier, CaseResult& result) {
  const SweepRow blank = std::exchange(result.row, earlier.row);
  SweepRow& row = result.row;
  result.samples = earlier.samples;
  result.kept = true;
  row.networks = blank.networks;
  row.flops = blank.flops;
  row.bytes = blank.bytes;
  row.ai = blank.ai;
  row.shortcut = blank.shortcut;
  row.gflops = *row.flops / *row.time_cold_us * 1e-3;
  row.gbps = *row.bytes / *row.time_cold_us * 1e-3;
  row.above_roof.clear();
}

void keep_other_phases(const EarlierRow& earlier, const std::vector<std::string>& taken, Timing& timing) {
  const auto was_taken = [&](const char* phase) { return std::ranges::find(taken, phase) != taken.end(); };
  Timing before;
  static_cast<RowSamples&>(before) = earlier.samples;
  before.stop = earlier.row.stop;
  before.warm_stop = earlier.row.warm_stop;
  if (!was_taken("cold"))
    keep_members(before, timing, &Timing::cold_us, &Timing::cold_batches, &Timing::cold_mhz, &Timing::stop);
  if (!was_taken("warm"))
    keep_members(before, timing, &Timing::warm_us, &Timing::warm_batches, &Timing::warm_mhz, &Timing::warm_edge_us,
                 &Timing::warm_stop);
  if (!was_taken("serial"))
    keep_members(before, timing, &Timing::warm_serial_us, &Timing::warm_serial_batches, &Timing::warm_serial_mhz,
                 &Timing::warm_serial_edge_us);
  if (!was_taken("weights"))
    keep_members(before, timing, &Timing::weights_cold_us, &Timing::weights_cold_batches, &Timing::weights_cold_mhz);
}

void forget_comparison(SweepRow& row) {
  row.paired_with.clear();
  for (Figure* const figure : {&row.speedup_cold, &row.speedup_cold_low, &row.speedup_cold_high, &row.speedup_warm,
                               &row.speedup_warm_low, &row.speedup_warm_high})
    figure->reset();
}

}  // namespace noisefloor
