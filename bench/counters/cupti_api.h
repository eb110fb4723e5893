// CUPTI, opened at run time, so that the program starts where it is absent: the functions that counters and traces
// call, under their own names. Includes CUPTI's headers; for the *_cuda.cpp files of this folder only.
#pragma once

#include <cupti_activity.h>
#include <cupti_profiler_host.h>
#include <cupti_profiler_target.h>
#include <cupti_range_profiler.h>
#include <cupti_target.h>
#include <cupti_version.h>

namespace noisefloor::cupti {

struct Api {
  decltype(::cuptiGetVersion)* version;
  decltype(::cuptiDeviceGetChipName)* device_chip_name;
  decltype(::cuptiProfilerInitialize)* initialize;
  decltype(::cuptiProfilerGetCounterAvailability)* counter_availability;

  decltype(::cuptiProfilerHostInitialize)* host_initialize;
  decltype(::cuptiProfilerHostDeinitialize)* host_deinitialize;
  decltype(::cuptiProfilerHostGetMetricProperties)* host_metric_properties;
  decltype(::cuptiProfilerHostConfigAddMetrics)* host_add_metrics;
  decltype(::cuptiProfilerHostGetConfigImageSize)* host_config_size;
  decltype(::cuptiProfilerHostGetConfigImage)* host_config;
  decltype(::cuptiProfilerHostGetNumOfPasses)* host_passes;
  decltype(::cuptiProfilerHostEvaluateToGpuValues)* host_evaluate;

  decltype(::cuptiRangeProfilerEnable)* range_enable;
  decltype(::cuptiRangeProfilerDisable)* range_disable;
  decltype(::cuptiRangeProfilerGetCounterDataSize)* range_data_size;
  decltype(::cuptiRangeProfilerCounterDataImageInitialize)* range_data_initialize;
  decltype(::cuptiRangeProfilerSetConfig)* range_set_config;
  decltype(::cuptiRangeProfilerStart)* range_start;
  decltype(::cuptiRangeProfilerStop)* range_stop;
  decltype(::cuptiRangeProfilerPushRange)* range_push;
  decltype(::cuptiRangeProfilerPopRange)* range_pop;
  decltype(::cuptiRangeProfilerDecodeData)* range_decode;
  decltype(::cuptiRangeProfilerGetCounterDataInfo)* range_data_info;

  decltype(::cuptiActivityRegisterCallbacks)* activity_register_callbacks;
  decltype(::cuptiActivityEnable)* activity_enable;
  decltype(::cuptiActivityDisable)* activity_disable;
  decltype(::cuptiActivityFlushAll)* activity_flush_all;
  decltype(::cuptiActivityGetNextRecord)* next_record;
  decltype(::cuptiActivityGetNumDroppedRecords)* activity_dropped;
  decltype(::cuptiActivityPushExternalCorrelationId)* push_external_id;
  decltype(::cuptiActivityPopExternalCorrelationId)* pop_external_id;
};

const Api& api();  // throws CountersUnavailable (no_cupti) with the loader's words

}  // namespace noisefloor::cupti
