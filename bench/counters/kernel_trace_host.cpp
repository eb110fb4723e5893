// The trace in a build without CUDA: it cannot be made, and says so.
#include "bench/counters/kernel_trace.h"

namespace noisefloor {
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

}  // namespace noisefloor
