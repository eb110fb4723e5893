// The part of the counters that needs CUPTI's host library, but no GPU.
#include <utility>

#include "bench/counters/counter_status.h"
#include "bench/counters/cupti_api.h"
#include "bench/counters/cupti_host_object.h"
#include "bench/counters/metrics.h"

namespace noisefloor {

void check_cupti(CUptiResult result, const char* call) {
  if (result != CUPTI_SUCCESS) throw counters_unavailable(static_cast<int>(result), call);
}

CuptiHostObject::CuptiHostObject(const std::string& chip, std::vector<std::uint8_t> availability)
    : availability_(std::move(availability)) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params);
  params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  params.pChipName = chip.c_str();
  params.pCounterAvailabilityImage = availability_.empty() ? nullptr : availability_.data();
  const CUptiResult result = cupti::api().host_initialize(&params);
  if (result == CUPTI_ERROR_INVALID_CHIP_NAME || result == CUPTI_ERROR_INVALID_PARAMETER)
    throw CountersUnavailable(CounterStatus::unsupported_chip,
                              "this CUPTI does not know the chip '" + chip + "'; use a newer one");
  check_cupti(result, "cuptiProfilerHostInitialize");
  object_ = params.pHostObject;
}

CuptiHostObject::~CuptiHostObject() {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
  params.pHostObject = object_;
  cupti::api().host_deinitialize(&params);
}

bool CuptiHostObject::knows(const char* name) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params);
  params.pHostObject = object_;
  params.pMetricName = name;
  return cupti::api().host_metric_properties(&params) == CUPTI_SUCCESS;
}

std::vector<std::uint8_t> CuptiHostObject::configure(std::vector<const char*> names) {
  auto add = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
  add.pHostObject = object_;
  add.ppMetricNames = names.data();
  add.numMetrics = names.size();
  check_cupti(cupti::api().host_add_metrics(&add), "cuptiProfilerHostConfigAddMetrics");

  auto size = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
  size.pHostObject = object_;
  check_cupti(cupti::api().host_config_size(&size), "cuptiProfilerHostGetConfigImageSize");
  std::vector<std::uint8_t> config(size.configImageSize);

  auto get = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
  get.pHostObject = object_;
  get.configImageSize = config.size();
  get.pConfigImage = config.data();
  check_cupti(cupti::api().host_config(&get), "cuptiProfilerHostGetConfigImage");
  return config;
}

std::size_t CuptiHostObject::passes(std::vector<std::uint8_t>& config) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
  params.configImageSize = config.size();
  params.pConfigImage = config.data();
  check_cupti(cupti::api().host_passes(&params), "cuptiProfilerHostGetNumOfPasses");
  return params.numOfPasses;
}

std::vector<double> CuptiHostObject::evaluate(const std::vector<std::uint8_t>& counter_data, std::size_t range,
                                              std::vector<const char*> names) {
  std::vector<double> values(names.size());
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  params.pHostObject = object_;
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = range;
  params.ppMetricNames = names.data();
  params.numMetrics = names.size();
  params.pMetricValues = values.data();
  check_cupti(cupti::api().host_evaluate(&params), "cuptiProfilerHostEvaluateToGpuValues");
  return values;
}

MetricCheck check_metrics(const std::string& chip, std::span<const Metric> wanted) {
  CuptiHostObject host(chip);
  MetricCheck result;
  std::vector<const char*> known;
  for (const Metric& candidate : wanted) {
    if (host.knows(candidate.cupti))
      known.push_back(candidate.cupti);
    else
      result.unknown.emplace_back(candidate.cupti);
  }
  if (!known.empty()) {
    std::vector<std::uint8_t> config = host.configure(known);
    result.passes = CuptiHostObject::passes(config);
  }
  return result;
}

}  // namespace noisefloor
