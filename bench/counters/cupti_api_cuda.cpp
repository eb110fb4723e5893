#include "bench/counters/cupti_api.h"

#include <cuda.h>
#include <fmt/format.h>

#include <string>

#include "bench/counters/counter_status.h"
#include "kernels/core/dynamic_library.h"

namespace noisefloor::cupti {
namespace {

Api load_api() {
  // The toolkit's major version, which CUPTI shares: another one has another ABI.
  const std::string name = fmt::format("libcupti.so.{}", CUDA_VERSION / 1000);
  const DynamicLibrary library(name.c_str(), NOISEFLOOR_CUPTI_LIBRARY_DIR);
  Api api{};
  library.load("cuptiGetVersion", api.version);
  library.load("cuptiDeviceGetChipName", api.device_chip_name);
  library.load("cuptiProfilerInitialize", api.initialize);
  library.load("cuptiProfilerGetCounterAvailability", api.counter_availability);
  library.load("cuptiProfilerHostInitialize", api.host_initialize);
  library.load("cuptiProfilerHostDeinitialize", api.host_deinitialize);
  library.load("cuptiProfilerHostGetMetricProperties", api.host_metric_properties);
  library.load("cuptiProfilerHostConfigAddMetrics", api.host_add_metrics);
  library.load("cuptiProfilerHostGetConfigImageSize", api.host_config_size);
  library.load("cuptiProfilerHostGetConfigImage", api.host_config);
  library.load("cuptiProfilerHostGetNumOfPasses", api.host_passes);
  library.load("cuptiProfilerHostEvaluateToGpuValues", api.host_evaluate);
  library.load("cuptiRangeProfilerEnable", api.range_enable);
  library.load("cuptiRangeProfilerDisable", api.range_disable);
  library.load("cuptiRangeProfilerGetCounterDataSize", api.range_data_size);
  library.load("cuptiRangeProfilerCounterDataImageInitialize", api.range_data_initialize);
  library.load("cuptiRangeProfilerSetConfig", api.range_set_config);
  library.load("cuptiRangeProfilerStart", api.range_start);
  library.load("cuptiRangeProfilerStop", api.range_stop);
  library.load("cuptiRangeProfilerPushRange", api.range_push);
  library.load("cuptiRangeProfilerPopRange", api.range_pop);
  library.load("cuptiRangeProfilerDecodeData", api.range_decode);
  library.load("cuptiRangeProfilerGetCounterDataInfo", api.range_data_info);
  library.load("cuptiActivityRegisterCallbacks", api.activity_register_callbacks);
  library.load("cuptiActivityEnable", api.activity_enable);
  library.load("cuptiActivityDisable", api.activity_disable);
  library.load("cuptiActivityFlushAll", api.activity_flush_all);
  library.load("cuptiActivityGetNextRecord", api.next_record);
  library.load("cuptiActivityGetNumDroppedRecords", api.activity_dropped);
  library.load("cuptiActivityPushExternalCorrelationId", api.push_external_id);
  library.load("cuptiActivityPopExternalCorrelationId", api.pop_external_id);
  return api;
}

}  // namespace

const Api& api() {
  // A throw leaves it unset, so the next call says the same again.
  static const Api loaded = [] {
    try {
      return load_api();
    } catch (const LibraryMissing& error) {
      throw CountersUnavailable(CounterStatus::no_cupti, fmt::format("no CUPTI: {}", error.what()));
    }
  }();
  return loaded;
}

}  // namespace noisefloor::cupti
