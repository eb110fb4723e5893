// Counters, traces and resources of kernels in a build without CUDA: there are none, and it says so.
#include <stdexcept>

#include "bench/counters/counter_status.h"
#include "bench/counters/kernel_resources.h"
#include "bench/counters/kernel_trace.h"
#include "bench/counters/range_profiler.h"

namespace noisefloor {
namespace {

constexpr const char* kNoCuda = "no CUDA in this build: nothing can be counted or traced";

[[noreturn]] void refuse() {
  throw CountersUnavailable(CounterStatus::no_cupti, kNoCuda);
}

}  // namespace

struct RangeProfiler::State {};
struct KernelTrace::State {};

RangeProfiler::RangeProfiler(std::span<const Metric>) {
  refuse();
}
RangeProfiler::~RangeProfiler() = default;
std::size_t RangeProfiler::passes() const {
  refuse();
}
std::map<std::string, double> RangeProfiler::measure(const std::function<void(int)>&, const std::function<void()>&) {
  refuse();
}
CounterProbe probe_counters() {
  return {CounterStatus::no_cupti, kNoCuda};
}
std::string cupti_version() {
  return {};
}

KernelTrace::KernelTrace() {
  refuse();
}
KernelTrace::~KernelTrace() = default;
void KernelTrace::require_library() {
  refuse();
}
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
  refuse();
}
int ordinary_edges(Stream, const std::function<Status()>&) {
  refuse();
}

}  // namespace noisefloor
