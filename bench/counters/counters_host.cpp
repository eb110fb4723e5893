// Counters, traces and resources of kernels in a build without CUDA: there are none, and it says so.

#include "bench/counters/counter_status.h"
#include "bench/counters/kernel_resources.h"
#include "bench/counters/kernel_trace.h"
#include "bench/counters/launch_signature.h"
#include "bench/counters/range_profiler.h"

namespace noisefloor {
namespace {

constexpr const char* kNoCuda = "no CUDA in this build: nothing can be counted or traced";

[[noreturn]] void refuse() {
  throw CountersUnavailable(CounterStatus::no_cupti, kNoCuda);
}

}  // namespace

std::unique_ptr<RangeProfiler> open_range_profiler() {
  refuse();
}
CounterProbe probe_counters() {
  return {CounterStatus::no_cupti, kNoCuda};
}
std::string cupti_version() {
  return {};
}
std::unique_ptr<KernelTrace> open_kernel_trace() {
  refuse();
}
void require_trace_library() {
  refuse();
}
std::vector<KernelResources> kernel_resources(Stream, const std::function<Status()>&) {
  refuse();
}
std::unique_ptr<CodeWatch> watch_code() {
  refuse();
}
int ordinary_edges(Stream, const std::function<Status()>&) {
  refuse();
}

}  // namespace noisefloor
