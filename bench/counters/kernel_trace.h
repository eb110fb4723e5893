// What runs on the device and when: CUPTI's activity records of kernels, copies and memsets, one by one.
//
// Unlike counters, records need no permission, and kernels run as fast as without; but each launch from the host takes
// longer while a trace is alive, so launches are best traced out of a CUDA graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/counters/counter_status.h"

namespace noisefloor {

// One kernel, copy or memset. Times are of one clock, in nanoseconds.
struct DeviceActivity {
  std::string name;  // demangled; "memcpy", "memset"
  std::uint64_t start_ns = 0, end_ns = 0;
  std::optional<std::uint64_t> tag;  // of the launch, where one was set
};

// Recording is on from open_kernel_trace() to the object's end, for this process and the current device.
class KernelTrace {
 public:
  virtual ~KernelTrace() = default;

  // What ran on the device because of `run`, in the order in which it started. Waits for the device itself. Throws
  // CountersUnavailable when records were dropped or have no time, and whatever `run` throws.
  virtual std::vector<DeviceActivity> collect(const std::function<void()>& run) = 0;
  // The same; activities launched between tag() and untag() on this thread carry the tag. Not for graph replays.
  virtual std::vector<DeviceActivity> collect_tagged(const std::function<void()>& run) = 0;
  virtual void tag(std::uint64_t tag) = 0;
  virtual void untag() = 0;
};

// Throws CountersUnavailable: no CUPTI, no permission, another tool attached.
std::unique_ptr<KernelTrace> open_kernel_trace();
// Throws CountersUnavailable (no_cupti) where there is no CUPTI to open; touches nothing else.
void require_trace_library();

}  // namespace noisefloor
