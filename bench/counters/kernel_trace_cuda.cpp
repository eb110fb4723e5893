#include "bench/counters/kernel_trace.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "bench/counters/cupti_api.h"
#include "bench/counters/kernel_resources.h"

namespace noisefloor {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20, kBufferAlignment = 8;
constexpr CUpti_ExternalCorrelationKind kTagKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw CountersUnavailable(CounterStatus::failed, fmt::format("trace: {}: {}", call, cudaGetErrorString(error)));
}

struct Record {
  std::string name;  // as CUPTI has it
  std::uint64_t start_ns, end_ns;
  std::uint32_t correlation, device;
};

// What CUPTI's callbacks, which take no argument of ours, fill, on threads of CUPTI's. Never destroyed: they may come
// as late as the end of the process.
struct Collector {
  std::mutex mutex;
  std::vector<Record> records;
  std::map<std::uint32_t, std::uint64_t> tags;  // by correlation
  std::string failure;
};
Collector& collector() {
  static Collector& one = *new Collector;
  return one;
}

// The structures of CUDA 12's CUPTI: later ones begin with the same fields.
void take(Collector& to, const CUpti_Activity& activity) {
  switch (activity.kind) {
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel9&>(activity);
      to.records.push_back(
          {kernel.name == nullptr ? "" : kernel.name, kernel.start, kernel.end, kernel.correlationId, kernel.deviceId});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy5&>(activity);
      to.records.push_back({"memcpy", copy.start, copy.end, copy.correlationId, copy.deviceId});
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = reinterpret_cast<const CUpti_ActivityMemset4&>(activity);
      to.records.push_back({"memset", set.start, set.end, set.correlationId, set.deviceId});
      break;
    }
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: {
      const auto& tagged = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(activity);
      if (tagged.externalKind == kTagKind) to.tags[tagged.correlationId] = tagged.externalId;
      break;
    }
    default:  // API records, which only carry the tags
      break;
  }
}

void CUPTIAPI give_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) noexcept {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;  // then CUPTI drops the records, and counts them
  *most_records = 0;                               // as many as fit
}

void CUPTIAPI take_buffer(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                          std::size_t valid_bytes) noexcept {
  Collector& to = collector();
  const std::lock_guard lock(to.mutex);
  try {
    CUpti_Activity* activity = nullptr;
    while (valid_bytes > 0) {
      const CUptiResult result = cupti::api().next_record(buffer, valid_bytes, &activity);
      if (result == CUPTI_ERROR_MAX_LIMIT_REACHED) break;
      check_cupti(result, "cuptiActivityGetNextRecord");
      take(to, *activity);
    }
  } catch (const std::exception& error) {
    to.failure = error.what();
  }
  std::free(buffer);
}

// Recorded from construction to destruction.
class Enabled {
 public:
  explicit Enabled(CUpti_ActivityKind kind) : kind_(kind) {
    check_cupti(cupti::api().activity_enable(kind), "cuptiActivityEnable");
  }
  ~Enabled() { (void)cupti::api().activity_disable(kind_); }
  Enabled(const Enabled&) = delete;
  Enabled& operator=(const Enabled&) = delete;

 private:
  CUpti_ActivityKind kind_;
};

// Delivers all records of what has ended to the collector.
void flush() {
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check_cupti(cupti::api().activity_flush_all(0), "cuptiActivityFlushAll");
}

// Before anything is enabled: records without a buffer to go to are lost.
struct Callbacks {
  Callbacks() {
    check_cuda(cudaFree(nullptr), "creating the CUDA context");
    check_cupti(cupti::api().activity_register_callbacks(give_buffer, take_buffer), "cuptiActivityRegisterCallbacks");
  }
};

class CuptiTrace final : public KernelTrace {
 public:
  std::vector<DeviceActivity> collect(const std::function<void()>& run) override;
  std::vector<DeviceActivity> collect_tagged(const std::function<void()>& run) override;
  void tag(std::uint64_t tag) override {
    check_cupti(cupti::api().push_external_id(kTagKind, tag), "cuptiActivityPushExternalCorrelationId");
  }
  void untag() override {
    std::uint64_t last = 0;
    check_cupti(cupti::api().pop_external_id(kTagKind, &last), "cuptiActivityPopExternalCorrelationId");
  }

 private:
  OnlyOne<KernelTrace> only_one_{"trace: another KernelTrace of this process is still alive"};
  Callbacks callbacks_;
  Enabled kernels_{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL};
  Enabled copies_{CUPTI_ACTIVITY_KIND_MEMCPY};
  Enabled memsets_{CUPTI_ACTIVITY_KIND_MEMSET};
};

std::vector<DeviceActivity> CuptiTrace::collect(const std::function<void()>& run) {
  Collector& from = collector();
  const auto clear = [&] {
    const std::lock_guard lock(from.mutex);
    from.records.clear();
    from.tags.clear();
    from.failure.clear();
  };
  std::size_t dropped = 0;
  flush();
  check_cupti(cupti::api().activity_dropped(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords");  // sets to 0
  clear();
  run();
  flush();
  check_cupti(cupti::api().activity_dropped(nullptr, 0, &dropped), "cuptiActivityGetNumDroppedRecords");
  if (dropped != 0)
    throw CountersUnavailable(CounterStatus::failed, fmt::format("trace: CUPTI dropped {} records", dropped));

  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  std::vector<DeviceActivity> activities;
  {
    const std::lock_guard lock(from.mutex);
    if (!from.failure.empty()) throw CountersUnavailable(CounterStatus::failed, "trace: " + from.failure);
    for (const Record& record : from.records) {
      if (record.device != static_cast<std::uint32_t>(device)) continue;
      if (record.start_ns == 0 || record.end_ns < record.start_ns)
        throw CountersUnavailable(CounterStatus::failed,
                                  fmt::format("trace: CUPTI has no time for {}", demangled(record.name)));
      const auto tagged = from.tags.find(record.correlation);
      activities.push_back({demangled(record.name), record.start_ns, record.end_ns,
                            tagged == from.tags.end() ? std::nullopt : std::optional(tagged->second)});
    }
  }
  clear();
  std::stable_sort(activities.begin(), activities.end(),
                   [](const DeviceActivity& a, const DeviceActivity& b) { return a.start_ns < b.start_ns; });
  return activities;
}

std::vector<DeviceActivity> CuptiTrace::collect_tagged(const std::function<void()>& run) {
  // Tags come with the records of API calls, of the runtime's and, for libraries that use it, of the driver's.
  const Enabled tags{CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
  const Enabled runtime{CUPTI_ACTIVITY_KIND_RUNTIME};
  const Enabled driver{CUPTI_ACTIVITY_KIND_DRIVER};
  return collect(run);
}

}  // namespace

std::unique_ptr<KernelTrace> open_kernel_trace() {
  return std::make_unique<CuptiTrace>();
}

void require_trace_library() {
  (void)cupti::api();
}

}  // namespace noisefloor
