#include "bench/counters/counter_config.h"

#include <fmt/format.h>

#include <cmath>
#include <mutex>
#include <utility>

#include "bench/counters/cupti_api.h"

namespace noisefloor {
namespace {

std::string chip_name(int device) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Device_GetChipName_Params);
  params.deviceIndex = static_cast<std::size_t>(device);
  check_cupti(cupti::api().device_chip_name(&params), "cuptiDeviceGetChipName");
  return params.pChipName;
}

// The counters that this device offers to this user.
std::vector<std::uint8_t> availability_of(CUcontext context) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params);
  params.ctx = context;
  check_cupti(cupti::api().counter_availability(&params), "cuptiProfilerGetCounterAvailability");  // for the size
  std::vector<std::uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  check_cupti(cupti::api().counter_availability(&params), "cuptiProfilerGetCounterAvailability");
  return image;
}

CUpti_Profiler_Host_Object* host_object(const std::string& chip, const std::vector<std::uint8_t>& availability) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_Initialize_Params);
  params.profilerType = CUPTI_PROFILER_TYPE_RANGE_PROFILER;
  params.pChipName = chip.c_str();
  params.pCounterAvailabilityImage = availability.empty() ? nullptr : availability.data();
  const CUptiResult result = cupti::api().host_initialize(&params);
  if (result == CUPTI_ERROR_INVALID_CHIP_NAME || result == CUPTI_ERROR_INVALID_PARAMETER)
    throw CountersUnavailable(CounterStatus::unsupported_chip,
                              "this CUPTI does not know the chip '" + chip + "'; use a newer one");
  check_cupti(result, "cuptiProfilerHostInitialize");
  return params.pHostObject;
}

bool knows(CUpti_Profiler_Host_Object* object, const char* metric) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetMetricProperties_Params);
  params.pHostObject = object;
  params.pMetricName = metric;
  return cupti::api().host_metric_properties(&params) == CUPTI_SUCCESS;
}

std::vector<std::uint8_t> configured(CUpti_Profiler_Host_Object* object, std::vector<const char*> metrics) {
  auto add = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_ConfigAddMetrics_Params);
  add.pHostObject = object;
  add.ppMetricNames = metrics.data();
  add.numMetrics = metrics.size();
  check_cupti(cupti::api().host_add_metrics(&add), "cuptiProfilerHostConfigAddMetrics");

  auto size = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImageSize_Params);
  size.pHostObject = object;
  check_cupti(cupti::api().host_config_size(&size), "cuptiProfilerHostGetConfigImageSize");
  std::vector<std::uint8_t> image(size.configImageSize);

  auto get = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetConfigImage_Params);
  get.pHostObject = object;
  get.configImageSize = image.size();
  get.pConfigImage = image.data();
  check_cupti(cupti::api().host_config(&get), "cuptiProfilerHostGetConfigImage");
  return image;
}

std::size_t passes_of(std::vector<std::uint8_t>& image) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_GetNumOfPasses_Params);
  params.configImageSize = image.size();
  params.pConfigImage = image.data();
  check_cupti(cupti::api().host_passes(&params), "cuptiProfilerHostGetNumOfPasses");
  return params.numOfPasses;
}

}  // namespace

void CounterConfig::Deinitialize::operator()(CUpti_Profiler_Host_Object* object) const {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_Deinitialize_Params);
  params.pHostObject = object;
  cupti::api().host_deinitialize(&params);
}

CounterConfig::CounterConfig(const std::string& chip, std::vector<std::uint8_t> availability,
                             std::span<const Metric> wanted)
    : availability_(std::move(availability)), object_(host_object(chip, availability_)), wanted_(wanted) {
  for (const Metric& one : wanted) {
    if (!knows(object_.get(), one.cupti))
      throw CountersUnavailable(CounterStatus::unsupported_chip,
                                fmt::format("the chip {} has no metric '{}' ({})", chip, one.cupti, one.name));
    metrics_.push_back(one.cupti);
  }
  image_ = configured(object_.get(), metrics_);
  passes_ = passes_of(image_);
}

std::map<std::string, double> CounterConfig::evaluate(const std::vector<std::uint8_t>& counter_data) {
  std::vector<double> values(metrics_.size());
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Host_EvaluateToGpuValues_Params);
  params.pHostObject = object_.get();
  params.pCounterDataImage = counter_data.data();
  params.counterDataImageSize = counter_data.size();
  params.rangeIndex = 0;
  params.ppMetricNames = metrics_.data();
  params.numMetrics = metrics_.size();
  params.pMetricValues = values.data();
  check_cupti(cupti::api().host_evaluate(&params), "cuptiProfilerHostEvaluateToGpuValues");
  std::map<std::string, double> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      throw CountersUnavailable(CounterStatus::failed, fmt::format("counters: {} has no value", wanted_[i].cupti));
    result[wanted_[i].name] = values[i];
  }
  return result;
}

CounterConfig& row_counter_config(int device, CUcontext context) {
  // Never destroyed: CUPTI may be gone before the statics of this program are.
  static auto& configs = *new std::map<int, std::unique_ptr<CounterConfig>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto found = configs.find(device);
  if (found == configs.end())
    found = configs.emplace(device, std::make_unique<CounterConfig>(chip_name(device), availability_of(context))).first;
  return *found->second;
}

}  // namespace noisefloor
