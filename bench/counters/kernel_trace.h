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

class KernelTrace {
 public:
  // Throws CountersUnavailable (no_cupti) where there is no CUPTI to open; touches nothing else.
  static void require_library();

  // Switches recording on, for this process. Throws CountersUnavailable: no CUPTI, no permission, another tool
  // attached.
  KernelTrace();
  ~KernelTrace();  // switches it off
  KernelTrace(const KernelTrace&) = delete;
  KernelTrace& operator=(const KernelTrace&) = delete;

  // What ran on the device because of `run`, in the order in which it started. Waits for the device itself. Throws
  // CountersUnavailable when records were dropped or have no time, and whatever `run` throws.
  std::vector<DeviceActivity> collect(const std::function<void()>& run);
  // The same; activities launched between tag() and untag() on this thread carry the tag. Not for graph replays.
  std::vector<DeviceActivity> collect_tagged(const std::function<void()>& run);
  void tag(std::uint64_t tag);
  void untag();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace noisefloor
