// Counters, traces and resources of kernels in a build without CUDA: there are none, and it says so.
#include <stdexcept>

#include "bench/counters/counter_status.h"
#include "bench/counters/kernel_resources.h"
#include "bench/counters/kernel_trace.h"
#include "bench/counters/metrics.h"
#include "bench/counters/range_profiler.h"

namespace noisefloor {

MetricCheck check_metrics(const std::string&, std::span<const Metric>) {
  throw CountersUnavailable(CounterStatus::no_cupti, "no CUDA in this build: metric names cannot be checked");
}

namespace {
constexpr const char* kNoCuda = "no CUDA in this build: nothing can be counted";
}

struct RangeProfiler::State {};

RangeProfiler::RangeProfiler(std::span<const Metric>, CountingCosts*) {
  throw CountersUnavailable(CounterStatus::no_cupti, kNoCuda);
}
RangeProfiler::~RangeProfiler() = default;

std::size_t RangeProfiler::passes() const {
  return 0;
}

std::map<std::string, double> RangeProfiler::measure(const std::function<void(int)>&, const std::function<void()>&) {
  throw CountersUnavailable(CounterStatus::no_cupti, kNoCuda);
}

CounterProbe probe_counters() {
  return {CounterStatus::no_cupti, kNoCuda};
}

std::string cupti_version() {
  return {};
}

namespace {

[[noreturn]] void refuse() {
  throw CountersUnavailable(CounterStatus::no_cupti, "no CUDA in this build: nothing can be traced");
}

}  // namespace

struct KernelTrace::State {};

void KernelTrace::require_library() {
  refuse();
}

KernelTrace::KernelTrace() {
  refuse();
}
KernelTrace::~KernelTrace() = default;

std::vector<DeviceActivity> KernelTrace::collect(const std::function<void()>&) {
  refuse();
}

std::vector<DeviceActivity> KernelTrace::collect_tagged(const std::function<void()>&) {
  refuse();
}

void KernelTrace::tag(std::uint64_t) {
  refuse();
}

void KernelTrace::untag() {
  refuse();
}

std::vector<KernelResources> kernel_resources(Stream, const std::function<Status()>&) {
  throw std::runtime_error("no CUDA in this build: there are no kernels to ask about");
}

std::vector<KernelResources> kernel_resources(const std::function<Status(Stream)>&) {
  return kernel_resources(nullptr, {});
}

int ordinary_edges(Stream, const std::function<Status()>&) {
  throw std::runtime_error("no CUDA in this build: there are no edges to count");
}

}  // namespace noisefloor
