#include "bench/counters/counter_config.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "bench/counters/counter_status.h"
#include "bench/counters/cupti_api.h"
#include "bench/counters/once.h"

namespace noisefloor {
namespace {

std::string chip_name(int device, CountingCosts* costs) {
  const TimedStep step(costs, "cuptiDeviceGetChipName");
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Device_GetChipName_Params);
  params.deviceIndex = static_cast<std::size_t>(device);
  check_cupti(cupti::api().device_chip_name(&params), "cuptiDeviceGetChipName");
  return params.pChipName;
}

// The counters that this device offers to this user.
std::vector<std::uint8_t> availability(CUcontext context, CountingCosts* costs) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params);
  params.ctx = context;
  const auto ask = [&] {
    const TimedStep step(costs, "cuptiProfilerGetCounterAvailability");
    check_cupti(cupti::api().counter_availability(&params), "cuptiProfilerGetCounterAvailability");
  };
  ask();  // for the size
  std::vector<std::uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  ask();
  return image;
}

CuptiHostObject timed_host_object(const std::string& chip, std::vector<std::uint8_t> availability,
                                  CountingCosts* costs) {
  const TimedStep step(costs, "cuptiProfilerHostInitialize");
  return CuptiHostObject(chip, std::move(availability));
}

}  // namespace

CounterConfig::CounterConfig(const std::string& chip, std::vector<std::uint8_t> availability,
                             std::span<const Metric> wanted, CountingCosts* costs)
    : host_(timed_host_object(chip, std::move(availability), costs)) {
  const TimedStep step(costs, "host: metric names to a configuration");
  for (const Metric& candidate : wanted) {
    if (!host_.knows(candidate.cupti))
      throw CountersUnavailable(CounterStatus::unsupported_chip, fmt::format("the chip {} has no metric '{}' ({})",
                                                                             chip, candidate.cupti, candidate.name));
    names_.emplace_back(candidate.name);
    metrics_.emplace_back(candidate.cupti);
  }
  image_ = host_.configure(cupti_pointers());
  passes_ = CuptiHostObject::passes(image_);
}

std::vector<const char*> CounterConfig::cupti_pointers() const {
  std::vector<const char*> pointers;
  for (const std::string& metric : metrics_) pointers.push_back(metric.c_str());
  return pointers;
}

std::vector<double> CounterConfig::evaluate(const std::vector<std::uint8_t>& counter_data) {
  return host_.evaluate(counter_data, 0, cupti_pointers());
}

CounterConfig& counter_config(int device, CUcontext context, std::span<const Metric> wanted, CountingCosts* costs) {
  // Never destroyed: CUPTI may be gone before the statics of this program are.
  using Key = std::pair<int, std::vector<std::pair<std::string, std::string>>>;
  static auto& configs = *new MadeOnce<Key, CounterConfig>;
  Key key{device, {}};
  for (const Metric& candidate : wanted) key.second.emplace_back(candidate.name, candidate.cupti);
  return configs.get(key, [&] {
    const std::string chip = chip_name(device, costs);
    return std::make_unique<CounterConfig>(chip, availability(context, costs), wanted, costs);
  });
}

}  // namespace noisefloor
