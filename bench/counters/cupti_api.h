// CUPTI, opened at run time, so that the program starts where it is absent: the functions that counters and traces
// call, under their own names. Includes CUPTI's headers; for the *_cuda.cpp files of this folder only.
#pragma once

#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <cupti_version.h>

#include <atomic>

#include "bench/counters/counter_status.h"
#include "kernels/core/dynamic_library.h"

namespace noisefloor {

namespace cupti {

// Called here, and the function of the library.
#define NOISEFLOOR_CUPTI(X)                                              \
  X(version, cuptiGetVersion)                                            \
  X(device_chip_name, cuptiDeviceGetChipName)                            \
  X(initialize, cuptiProfilerInitialize)                                 \
  X(counter_availability, cuptiProfilerGetCounterAvailability)           \
  X(host_initialize, cuptiProfilerHostInitialize)                        \
  X(host_deinitialize, cuptiProfilerHostDeinitialize)                    \
  X(host_metric_properties, cuptiProfilerHostGetMetricProperties)        \
  X(host_add_metrics, cuptiProfilerHostConfigAddMetrics)                 \
  X(host_config_size, cuptiProfilerHostGetConfigImageSize)               \
  X(host_config, cuptiProfilerHostGetConfigImage)                        \
  X(host_passes, cuptiProfilerHostGetNumOfPasses)                        \
  X(host_evaluate, cuptiProfilerHostEvaluateToGpuValues)                 \
  X(range_enable, cuptiRangeProfilerEnable)                              \
  X(range_disable, cuptiRangeProfilerDisable)                            \
  X(range_data_size, cuptiRangeProfilerGetCounterDataSize)               \
  X(range_data_initialize, cuptiRangeProfilerCounterDataImageInitialize) \
  X(range_set_config, cuptiRangeProfilerSetConfig)                       \
  X(range_start, cuptiRangeProfilerStart)                                \
  X(range_stop, cuptiRangeProfilerStop)                                  \
  X(range_push, cuptiRangeProfilerPushRange)                             \
  X(range_pop, cuptiRangeProfilerPopRange)                               \
  X(range_decode, cuptiRangeProfilerDecodeData)                          \
  X(range_data_info, cuptiRangeProfilerGetCounterDataInfo)               \
  X(activity_register_callbacks, cuptiActivityRegisterCallbacks)         \
  X(activity_enable, cuptiActivityEnable)                                \
  X(activity_disable, cuptiActivityDisable)                              \
  X(activity_flush_all, cuptiActivityFlushAll)                           \
  X(next_record, cuptiActivityGetNextRecord)                             \
  X(activity_dropped, cuptiActivityGetNumDroppedRecords)                 \
  X(push_external_id, cuptiActivityPushExternalCorrelationId)            \
  X(pop_external_id, cuptiActivityPopExternalCorrelationId)              \
  X(subscribe, cuptiSubscribe)                                           \
  X(unsubscribe, cuptiUnsubscribe)                                       \
  X(enable_callback, cuptiEnableCallback)

struct Api {
  NOISEFLOOR_CUPTI(NOISEFLOOR_API_MEMBER)
};

const Api& api();  // throws CountersUnavailable (no_cupti) with the loader's words

}  // namespace cupti

// A parameter block with the size field by which CUPTI knows its version.
template <class Params>
Params sized_params(std::size_t size) {
  Params params{};
  params.structSize = size;
  return params;
}
#define NOISEFLOOR_CUPTI_PARAMS(type) ::noisefloor::sized_params<type>(type##_STRUCT_SIZE)

void check_cupti(CUptiResult result, const char* call);  // throws CountersUnavailable

// CUPTI has one range profiler and one set of activity callbacks a process, and answers a second user with "invalid
// parameter". The one `Owner` of this process that is alive; another one throws CountersUnavailable (busy).
template <class Owner>
class OnlyOne {
 public:
  explicit OnlyOne(const char* message) {
    if (taken_.exchange(true)) throw CountersUnavailable(CounterStatus::busy, message);
  }
  ~OnlyOne() { taken_ = false; }
  OnlyOne(const OnlyOne&) = delete;
  OnlyOne& operator=(const OnlyOne&) = delete;

 private:
  static inline std::atomic<bool> taken_ = false;
};

}  // namespace noisefloor
