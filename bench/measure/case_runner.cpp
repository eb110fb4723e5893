#include "bench/measure/case_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/counters/kernel_resources.h"
#include "bench/counters/nvtx.h"
#include "bench/counters/range_profiler.h"
#include "bench/platform/build_info.h"
#include "bench/platform/clocks.h"
#include "bench/platform/nvml.h"
#ifdef NOISEFLOOR_TEST_SLOWDOWN_PERCENT
#include "bench/measure/test_slowdown.h"
#endif
#include "reports/statistics.h"

namespace noisefloor {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

SweepRow blank_row(const Case& test_case, const PlatformDescription& description, const std::string& arch) {
  SweepRow row;
  row.op = test_case.op().name;
  row.variant = test_case.candidate.name;
  row.kind = test_case.candidate.kind_text();
  row.dtype = to_string(test_case.dtype);
  row.problem = test_case.text;
  row.networks = test_case.networks;
  row.device = description.name;
  row.arch = arch;
  const Cost cost = test_case.op().cost(test_case.problem, test_case.dtype);
  row.flops = cost.flops;
  row.bytes = cost.bytes;
  row.ai = cost.flops / cost.bytes;
  row.commit = build_info().commit;
  return row;
}

// Only `ok` rows carry times.
void clear_times(CaseResult& result) {
  SweepRow& row = result.row;
  for (auto* field : {&row.time_cold_us, &row.time_cold_mad_us, &row.time_warm_us, &row.gflops, &row.gbps,
                      &row.attainable_gflops, &row.pct_of_roof})
    field->reset();
  row.bound.clear();
}

// Samples per call, so that one call lasts about 20 ms: short enough to check clocks between calls, long enough that
// the gate before it costs nothing.
int batch_size(double sample_us, int smallest, int largest) {
  return std::clamp(static_cast<int>(20e3 / std::max(sample_us, 1.0)), smallest, largest);
}

// What slows a measurement through no doing of the kernel. The power cap is not among them: dense products run into it
// on every data-centre GPU, so it is part of what they can do, and the row names it.
constexpr std::uint64_t kDisqualifying = kClockThrottle & ~static_cast<std::uint64_t>(kClockSwPowerCap);

// The gate takes the spread from batch to batch as a part of the noise; of fewer batches it says little.
constexpr std::size_t kFewestBatches = 4;

// A launch that runs into the power cap begins at the full clock and is taken down in steps over some hundred
// milliseconds. What was sampled before a step is dropped, for as long as this; a clock that never settles is then
// taken as it is.
constexpr double kSettleSeconds = 0.5;
constexpr double kClockStep = 0.01;

constexpr int kClockedLaunches = 4;  // behind a batch, where they are asked for

}  // namespace

struct CaseRunner::Clocks {
  explicit Clocks(const PlatformDescription& description)
      : monitor(GpuMonitor::of_cuda_device(description.index)), sampler(64, 20) {}
  GpuMonitor monitor;
  ClockSampler sampler;
};

std::optional<SweepRow> refused(const Case& test_case, const PlatformDescription& description,
                                const std::string& arch) {
  SweepRow row = blank_row(test_case, description, arch);
  const Candidate& candidate = test_case.candidate;
  if (!(description.is_host ? candidate.on_host() : candidate.on_gpu())) {
    row.status = description.is_host ? Outcome::no_device : Outcome::unsupported_arch;
    row.reason = description.is_host ? "needs a CUDA device" : "runs on the host (--device host)";
  } else if (!candidate.built()) {
    row.status = Outcome::not_built;
    row.reason = candidate.why_not_built();
  } else if (!description.is_host && !runs_on(candidate.arch, description.info.compute_capability)) {
    row.status = Outcome::unsupported_arch;
    row.reason = fmt::format("needs {}", to_string(candidate.arch));
  } else if (const Support support = candidate.can_run(test_case.problem, test_case.dtype); !support) {
    row.status = Outcome::unsupported_problem;
    row.reason = support.reason;
  } else {
    return std::nullopt;
  }
  return row;
}

CaseRunner::CaseRunner(Platform& platform, const Ceilings* ceilings, RunnerOptions options)
    : platform_(&platform), ceilings_(ceilings), options_(options) {
#ifdef NOISEFLOOR_TEST_SLOWDOWN_PERCENT
  (void)slowdown_percent(NOISEFLOOR_TEST_SLOWDOWN_PERCENT);  // a wrong one ends the run here
#endif
  if (platform.description().is_host) {
    counter_status_ = "host";
    if (options_.counters == CounterMode::require)
      throw CountersUnavailable(CounterStatus::no_device, "--counters=require: the host variants have no GPU counters");
    options_.counters = CounterMode::off;
    return;
  }
  clocks_ = std::make_unique<Clocks>(platform.description());
  if (options_.counters == CounterMode::off) {
    counter_status_ = to_string(CounterStatus::off);
    return;
  }
  const CounterProbe probe = probe_counters();
  counter_status_ = to_string(probe.status);
  if (probe.status == CounterStatus::ok) return;
  if (options_.counters == CounterMode::require) throw CountersUnavailable(probe.status, probe.message);
  counter_message_ = probe.message;
  options_.counters = CounterMode::off;
}

CaseRunner::~CaseRunner() = default;

CaseResult CaseRunner::run(const Case& test_case) {
  CaseResult result = measure(test_case);
  known_.add(result.row);
  return result;
}

CaseResult CaseRunner::measure(const Case& test_case) {
  const PlatformDescription& description = platform_->description();
  if (auto row = refused(test_case, description, platform_->arch_text())) return {*row, {}, {}, false, ""};
  CaseResult result{blank_row(test_case, description, platform_->arch_text()), {}, {}, false, ""};
  SweepRow& row = result.row;
  row.counter_status = counter_status_;
  try {
    const std::string key = test_case.op().name + "|" + test_case.text + "|" + to_string(test_case.dtype);
    if (key != fixture_key_) {
      fixture_key_.clear();
      verifier_.reset();
      fixture_.reset();
      fixture_ = std::make_unique<Fixture>(*platform_, test_case.op(), test_case.problem, test_case.dtype,
                                           options_.seed, options_.given);
      verifier_ = std::make_unique<Verifier>(*fixture_);
      fixture_key_ = key;
    }
    BoundCase bound(*fixture_, test_case.candidate, &known_);
    row.workspace_bytes = static_cast<long>(bound.workspace_bytes() + bound.own_bytes());
    if (bound.prepares()) row.prepare_us = bound.prepare_us();
    result.note = bound.description();

    const Verdict verdict = verifier_->verify(bound);
    row.max_rel_error = verdict.max_rel_error;
    row.tolerance = verdict.tolerance;
    result.verdict = verdict;
    if (!verdict.correct) {
      row.status = Outcome::incorrect;
      row.reason = verdict.reason;
      return result;
    }
    row.reason = bound.many_kernels() ? bound.description() : verdict.note;
    if (options_.on_verified) options_.on_verified(test_case, *fixture_);
    if (!bound.many_kernels()) read_resources(bound, result);
    fixture_->reset_outputs();
    time(test_case, bound, result);
    judge_timed_launches(bound, result);
    if (row.status == Outcome::ok) {
      place_under_roof(test_case, row);
      count(test_case, bound, row);
    }
  } catch (const LibraryMissing& error) {
    row.status = Outcome::not_built;
    row.reason = error.what();
  } catch (const LibraryRefused& error) {
    row.status = Outcome::unsupported_problem;
    row.reason = error.what();
  } catch (const OutOfMemory& error) {
    row.status = Outcome::out_of_memory;
    row.reason = error.what();
  } catch (const std::bad_alloc&) {
    row.status = Outcome::out_of_memory;
    row.reason = "host memory ran out while verifying or timing";
  } catch (const DeviceError& error) {
    row.status = Outcome::cuda_error;
    row.reason = error.what();
    result.device_lost = error.lost();
  } catch (const std::exception& error) {
    row.status = Outcome::cuda_error;
    row.reason = error.what();
  }
  if (row.status != Outcome::ok) clear_times(result);
  if (row.status == Outcome::cuda_error) {
    fixture_key_.clear();
    try {
      platform_->synchronize();
    } catch (const DeviceError&) {
      result.device_lost = true;  // an error that stays after it was reported is there to stay
    }
  }
  return result;
}

// The first launch was verified before the timing; a variant that is right once and wrong later (a counter that is not
// reset, a race between launches back to back) shows in what the last timed launch left.
void CaseRunner::judge_timed_launches(BoundCase& bound, CaseResult& result) {
  const auto& specs = fixture_->specs();
  if (std::any_of(specs.begin(), specs.end(), [](const TensorSpec& spec) { return spec.role == Role::inout; })) {
    if (const auto damage = fixture_->find_damage()) {
      result.row.status = Outcome::incorrect;
      result.row.reason = "after the timed launches: " + *damage;
    }
    return;
  }
  const Verdict verdict = verifier_->judge(bound);
  if (verdict.correct) return;
  result.row.status = Outcome::incorrect;
  result.row.reason = "after the timed launches: " + verdict.reason;
}

// The mean clock of each of a few cold launches, in launches of their own: the marks would count in a timed one.
std::vector<double> CaseRunner::clock_in_launches(const Launch& launch,
                                                  std::span<const std::pair<void*, std::size_t>> resident) {
  ClockSampler& sampler = clocks_->sampler;
  const Stream stream = platform_->context().stream;
  std::vector<int> samples;
  const auto marked = [&] {
    samples.push_back(sampler.begin(stream));
    const Status status = launch();
    sampler.end(samples.back(), stream);
    return status;
  };
  platform_->time_cold(marked, kClockedLaunches, resident);
  platform_->synchronize();
  std::vector<double> found;
  for (const int sample : samples)
    if (const double mhz = sampler.mhz(sample); mhz > 0) found.push_back(mhz);
  return found;
}

void CaseRunner::time(const Case& test_case, BoundCase& bound, CaseResult& result) {
  SweepRow& row = result.row;
  const auto resident = bound.resident();
  Launch launch = bound.launch();
  // The launches of a whole network would fill the driver's queue, which then waits for the device, before the gate
  // opens.
  std::unique_ptr<Recording> recording;
  if (bound.many_kernels()) {
    recording = platform_->record(launch);
    launch = [&recording] {
      recording->replay();
      return success();
    };
  }
#ifdef NOISEFLOOR_TEST_SLOWDOWN_PERCENT
  launch = slowed_down(*platform_, launch, resident, slowdown_percent(NOISEFLOOR_TEST_SLOWDOWN_PERCENT));
#endif
  const bool host = platform_->description().is_host;
  const NvtxRange range(test_case.name());

  const double probe_us = platform_->time_cold(launch, 1, resident).front();
  const double flush_us = host ? 0 : 50;
  const int batch = host ? batch_size(probe_us, 1, 20) : batch_size(probe_us + flush_us, 2, 50);
  std::optional<std::uint64_t> reasons;  // what NVML said, where it said anything
  double discarded_seconds = 0, settling_seconds = 0;
  double last_mhz = 0;
  auto start = Clock::now();
  while (true) {
    const auto batch_start = Clock::now();
    const auto samples = platform_->time_cold(launch, batch, resident);
    if (clocks_) {
      clocks_->sampler.clear();
      const std::vector<double> launch_mhz =
          options_.clock_in_launches ? clock_in_launches(launch, resident) : std::vector<double>{};
      const int index = clocks_->sampler.enqueue(platform_->context().stream);
      platform_->synchronize();
      const auto read = clocks_->monitor.read().clock_event_reasons;
      if ((read.value_or(0) & kDisqualifying) != 0 && discarded_seconds < options_.throttle_retry_seconds) {
        discarded_seconds += seconds_since(batch_start);
        start += Clock::now() - batch_start;  // time spent on discarded samples does not count against the cap
        continue;
      }
      if (read) reasons = reasons.value_or(0) | (*read & kClockThrottle);
      const double mhz = clocks_->sampler.mhz(index);
      const bool stepped = last_mhz > 0 && std::abs(mhz - last_mhz) > kClockStep * last_mhz;
      last_mhz = mhz;
      if (stepped && settling_seconds < kSettleSeconds) {
        settling_seconds += seconds_since(start);
        result.cold_us.clear();
        result.cold_batches.clear();
        result.cold_mhz.clear();
        result.launch_mhz.clear();
        start = Clock::now();
        continue;
      }
      result.cold_mhz.push_back(mhz);
      result.launch_mhz.insert(result.launch_mhz.end(), launch_mhz.begin(), launch_mhz.end());
    }
    result.cold_batches.push_back(samples.size());
    result.cold_us.insert(result.cold_us.end(), samples.begin(), samples.end());
    const double elapsed = seconds_since(start);
    const bool spread_known = result.cold_batches.size() >= kFewestBatches || elapsed >= options_.cold.wall_seconds;
    if (const auto stop = options_.cold.verdict(result.cold_us, elapsed); stop && spread_known) {
      row.stop = *stop;
      break;
    }
  }
  row.samples = static_cast<long>(result.cold_us.size());
  if (!result.cold_mhz.empty()) row.sm_clock_mhz = median(result.cold_mhz);

  // Enough launches in one graph that starting it is amortised; overlapping, as a pipeline launches them.
  const Launch overlapping = bound.launch(true);
  const int repeats = host ? 1 : std::clamp(static_cast<int>(200 / probe_us) + 1, 1, 20);
  start = Clock::now();
  do {
    const auto samples = platform_->time_warm(overlapping, batch_size(probe_us * repeats, 1, 10), repeats);
    result.warm_us.insert(result.warm_us.end(), samples.begin(), samples.end());
  } while (!options_.warm.verdict(result.warm_us, seconds_since(start)));
  if (clocks_)
    if (const auto read = clocks_->monitor.read().clock_event_reasons)
      reasons = reasons.value_or(0) | (*read & kClockThrottle);
  if (reasons) row.throttle = clock_events_text(*reasons);
  if ((reasons.value_or(0) & kDisqualifying) != 0) {
    row.status = Outcome::throttled;
    row.reason = fmt::format("{}, also after {:.0f} s of repeating", row.throttle, discarded_seconds);
    return;
  }

  row.time_cold_us = median(result.cold_us);
  row.time_cold_mad_us = median_absolute_deviation(result.cold_us);
  row.time_warm_us = median(result.warm_us);
  row.gflops = row.flops / *row.time_cold_us * 1e-3;
  row.gbps = row.bytes / *row.time_cold_us * 1e-3;
  row.status = Outcome::ok;
}

void CaseRunner::read_resources(BoundCase& bound, CaseResult& result) {
  if (platform_->description().is_host) return;
  SweepRow& row = result.row;
  std::vector<KernelResources> kernels;
  try {
    kernels = kernel_resources(platform_->context().stream, bound.launch());
  } catch (const std::runtime_error& error) {  // a driver that does not answer costs the columns, not the case
    result.note += std::string(result.note.empty() ? "" : "; ") + "kernel resources: " + error.what();
    return;
  }
  const KernelResources* main = dominant_kernel(kernels);
  if (main == nullptr) return;
  row.registers = main->registers;
  row.smem_bytes = static_cast<long>(main->shared_bytes());
  row.spill_bytes = static_cast<long>(main->local_bytes);
  row.occupancy_limit_pct = main->occupancy_limit_pct;
}

void CaseRunner::count(const Case& test_case, BoundCase& bound, SweepRow& row) {
  if (options_.counters == CounterMode::off) return;
  if (bound.many_kernels()) {  // a pass over hundreds of kernels for each group of metrics: over half a minute a row
    row.counter_status = "not_collected";
    return;
  }
  try {
    RangeProfiler profiler(row_metrics());
    const Launch launch = bound.launch();
    const NvtxRange range("counters " + test_case.name());
    const auto values = profiler.measure(
        [&](int) {
          fixture_->reset_outputs();
          platform_->flush_cache();
        },
        [&] { throw_if_failed(launch()); });
    const auto value = [&](const char* name) -> std::optional<double> {
      const auto found = values.find(name);
      return found == values.end() ? std::nullopt : std::optional(found->second);
    };
    row.dram_read_bytes = value("dram_read_bytes");
    row.dram_write_bytes = value("dram_write_bytes");
    row.l2_bytes = value("l2_bytes");
    row.occupancy_pct = value("occupancy_pct");
    row.tensor_pipe_pct = value("tensor_pipe_pct");
  } catch (const CountersUnavailable& error) {
    row.counter_status = to_string(error.status());
    counter_message_ = error.what();
    if (options_.counters == CounterMode::require) throw;
  }
}

void CaseRunner::place_under_roof(const Case& test_case, SweepRow& row) const {
  if (ceilings_ == nullptr) return;
  const Ceiling& compute =
      ceilings_->compute(test_case.op().cost(test_case.problem, test_case.dtype).pipe, test_case.dtype);
  const double memory_bound_gflops = *row.ai * ceilings_->memory().value;
  row.attainable_gflops = std::min(memory_bound_gflops, compute.value);
  row.pct_of_roof = 100 * *row.gflops / *row.attainable_gflops;
  row.bound = (memory_bound_gflops < compute.value ? "memory:" : "compute:") + compute.name;
}

}  // namespace noisefloor
