#include "bench/measure/case_counters.h"

#include <stdexcept>

#include "bench/counters/kernel_resources.h"
#include "bench/counters/nvtx.h"
#include "bench/measure/fixture.h"

namespace noisefloor {
namespace {

constexpr const char* kCounterModes[] = {"off", "auto", "require"};

}  // namespace

const char* to_string(CounterMode mode) {
  return kCounterModes[static_cast<int>(mode)];
}

CounterMode parse_counter_mode(const std::string& text) {
  for (const CounterMode mode : {CounterMode::off, CounterMode::require})
    if (text == to_string(mode)) return mode;
  return CounterMode::automatic;
}

CaseCounters::CaseCounters(const Platform& platform, CounterMode mode) : mode_(CounterMode::off) {
  if (platform.description().is_host) {
    status_ = "host";
    if (mode == CounterMode::require)
      throw CountersUnavailable(CounterStatus::no_device, "--counters=require: the host variants have no GPU counters");
    return;
  }
  if (mode == CounterMode::off) {
    status_ = to_string(CounterStatus::off);
    return;
  }
  const CounterProbe probe = probe_counters();
  status_ = to_string(probe.status);
  if (probe.status == CounterStatus::ok) {
    mode_ = mode;
    return;
  }
  if (mode == CounterMode::require) throw CountersUnavailable(probe.status, probe.message);
  message_ = probe.message;
}

void CaseCounters::count(Pass& pass, Platform& platform, const Case& test_case, BoundCase& bound, SweepRow& row) {
  if (mode_ == CounterMode::off) return;
  row.counter_status = status_;
  try {
    if (!pass) pass = open_range_profiler();
    const Launch launch = bound.launch();
    const NvtxRange range("counters " + test_case.id().name());
    const auto values = pass->measure(
        [&](int) {
          bound.fixture().reset_outputs();
          platform.flush_cache();
        },
        [&] { throw_if_failed(launch()); });
    take_counters(values, platform.description().info.l2_bytes, row);
  } catch (const CountersUnavailable& error) {
    pass.reset();
    row.counter_status = to_string(error.status());
    message_ = error.what();
    if (mode_ == CounterMode::require) throw;
  } catch (...) {  // in the middle of a counted range
    pass.reset();
    throw;
  }
}

void read_resources(Platform& platform, BoundCase& bound, CaseResult& result) {
  if (platform.description().is_host) return;
  std::vector<KernelResources> kernels;
  try {
    kernels = kernel_resources(platform.context().stream, bound.launch());
  } catch (const std::runtime_error& error) {
    add_note(std::string("kernel resources: ") + error.what(), result);
    return;
  }
  count_kernels(kernels, result.samples);
  const KernelResources* main = bound.many_kernels() ? nullptr : dominant_kernel(kernels);
  if (main != nullptr) take_resources(*main, result.row);
}

void count_edges(Platform& platform, const Launch& launch, CaseResult& result) {
  try {
    result.row.edges = ordinary_edges(platform.context().stream, launch);
  } catch (const std::runtime_error& error) {
    const auto* const device = dynamic_cast<const DeviceError*>(&error);
    if (device != nullptr && device->lost()) throw;
    add_note(std::string("edges: ") + error.what(), result);
  }
}

}  // namespace noisefloor
