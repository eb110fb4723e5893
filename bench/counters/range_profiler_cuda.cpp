#include "bench/counters/range_profiler.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/counters/cupti_api.h"
#include "bench/counters/cupti_host_object.h"

namespace noisefloor {
namespace {

constexpr const char* kRangeName = "launch";

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  const CounterStatus status = error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver
                                   ? CounterStatus::no_device
                                   : CounterStatus::failed;
  throw CountersUnavailable(status, fmt::format("counters: {}: {}", call, cudaGetErrorString(error)));
}

// CUPTI wants the context by the driver's handle; asked through the runtime, so that libcuda need not be linked.
CUcontext current_context() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", &entry, 12000, cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  CUcontext context = nullptr;
  if (found != cudaDriverEntryPointSuccess ||
      reinterpret_cast<decltype(&cuCtxGetCurrent)>(entry)(&context) != CUDA_SUCCESS || context == nullptr)
    throw CountersUnavailable(CounterStatus::failed, "counters: there is no current CUDA context");
  return context;
}

void initialize_cupti() {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_Initialize_Params);
  check_cupti(cupti::api().initialize(&params), "cuptiProfilerInitialize");
}

std::string chip_name(int device) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Device_GetChipName_Params);
  params.deviceIndex = static_cast<std::size_t>(device);
  check_cupti(cupti::api().device_chip_name(&params), "cuptiDeviceGetChipName");
  return params.pChipName;
}

// The counters that this device offers to this user.
std::vector<std::uint8_t> availability(CUcontext context) {
  auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_Profiler_GetCounterAvailability_Params);
  params.ctx = context;
  check_cupti(cupti::api().counter_availability(&params), "cuptiProfilerGetCounterAvailability");
  std::vector<std::uint8_t> image(params.counterAvailabilityImageSize);
  params.pCounterAvailabilityImage = image.data();
  check_cupti(cupti::api().counter_availability(&params), "cuptiProfilerGetCounterAvailability");
  return image;
}

// CUPTI allows one range profiler a process, and answers a second one with "invalid parameter".
class OnlyOne {
 public:
  OnlyOne() {
    if (taken_.exchange(true))
      throw CountersUnavailable(CounterStatus::busy, "counters: another RangeProfiler of this process is still alive");
  }
  ~OnlyOne() { taken_ = false; }
  OnlyOne(const OnlyOne&) = delete;
  OnlyOne& operator=(const OnlyOne&) = delete;

 private:
  static inline std::atomic<bool> taken_ = false;
};

// Enabled from construction to destruction.
class Enabled {
 public:
  explicit Enabled(CUcontext context) {
    auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_Enable_Params);
    params.ctx = context;
    check_cupti(cupti::api().range_enable(&params), "cuptiRangeProfilerEnable");
    object_ = params.pRangeProfilerObject;
  }
  ~Enabled() {
    auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_Disable_Params);
    params.pRangeProfilerObject = object_;
    cupti::api().range_disable(&params);
  }
  Enabled(const Enabled&) = delete;
  Enabled& operator=(const Enabled&) = delete;
  CUpti_RangeProfiler_Object* get() const { return object_; }

  // One of the calls that take nothing but the object.
  template <class Params>
  void call(CUptiResult (*function)(Params*), Params params, const char* name) const {
    params.pRangeProfilerObject = object_;
    check_cupti(function(&params), name);
  }

 private:
  CUpti_RangeProfiler_Object* object_ = nullptr;
};

}  // namespace

struct RangeProfiler::State {
  OnlyOne only_one;

  CUcontext context;
  std::vector<std::string> names;    // ours
  std::vector<const char*> metrics;  // CUPTI's
  CuptiHostObject host;
  std::vector<std::uint8_t> config;
  std::vector<std::uint8_t> counter_data;
  std::size_t passes = 0;
  Enabled enabled;

  State(CUcontext context_, const std::string& chip, std::span<const Metric> wanted)
      : context(context_), host(chip, availability(context_)), enabled(context_) {
    for (const Metric& candidate : wanted) {
      if (!host.knows(candidate.cupti))
        throw CountersUnavailable(CounterStatus::unsupported_chip, fmt::format("the chip {} has no metric '{}' ({})",
                                                                               chip, candidate.cupti, candidate.name));
      names.emplace_back(candidate.name);
      metrics.push_back(candidate.cupti);
    }
    config = host.configure(metrics);
    passes = CuptiHostObject::passes(config);

    auto size = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params);
    size.pRangeProfilerObject = enabled.get();
    size.pMetricNames = metrics.data();
    size.numMetrics = metrics.size();
    size.maxNumOfRanges = 1;
    size.maxNumRangeTreeNodes = 1;
    check_cupti(cupti::api().range_data_size(&size), "cuptiRangeProfilerGetCounterDataSize");
    counter_data.resize(size.counterDataSize);
  }

  // Empties the counter data and starts the replay from its first pass.
  void configure() {
    auto clear = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
    clear.pRangeProfilerObject = enabled.get();
    clear.counterDataSize = counter_data.size();
    clear.pCounterData = counter_data.data();
    check_cupti(cupti::api().range_data_initialize(&clear), "cuptiRangeProfilerCounterDataImageInitialize");

    auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params);
    params.pRangeProfilerObject = enabled.get();
    params.configSize = config.size();
    params.pConfig = config.data();
    params.counterDataImageSize = counter_data.size();
    params.pCounterDataImage = counter_data.data();
    params.range = CUPTI_UserRange;
    params.replayMode = CUPTI_UserReplay;
    params.maxRangesPerPass = 1;
    params.numNestingLevels = 1;
    params.minNestingLevel = 1;
    params.passIndex = 0;
    params.targetNestingLevel = 1;
    check_cupti(cupti::api().range_set_config(&params), "cuptiRangeProfilerSetConfig");
  }

  void push() {
    auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params);
    params.pRangeName = kRangeName;
    enabled.call(cupti::api().range_push, params, "cuptiRangeProfilerPushRange");
  }
};

RangeProfiler::RangeProfiler(std::span<const Metric> wanted) {
  if (wanted.empty()) throw std::invalid_argument("RangeProfiler: no metric was asked for");
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaFree(nullptr), "creating the CUDA context");
  initialize_cupti();
  state_ = std::make_unique<State>(current_context(), chip_name(device), wanted);
}

RangeProfiler::~RangeProfiler() = default;

std::size_t RangeProfiler::passes() const {
  return state_->passes;
}

std::map<std::string, double> RangeProfiler::measure(const std::function<void(int pass)>& before_pass,
                                                     const std::function<void()>& launch) {
  State& state = *state_;
  state.configure();
  const std::size_t most = 2 * state.passes + 2;  // more than that, and the replay does not end
  for (std::size_t pass = 0;; ++pass) {
    if (pass == most)
      throw CountersUnavailable(
          CounterStatus::failed,
          fmt::format("counters: the replay does not end after {} passes of {}", pass, state.passes));
    if (before_pass) before_pass(static_cast<int>(pass));
    check_cuda(cudaDeviceSynchronize(), "before a counted launch");
    state.enabled.call(cupti::api().range_start, NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params),
                       "cuptiRangeProfilerStart");
    state.push();
    launch();
    check_cuda(cudaDeviceSynchronize(), "the counted launch");
    state.enabled.call(cupti::api().range_pop, NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params),
                       "cuptiRangeProfilerPopRange");
    auto stop = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params);
    stop.pRangeProfilerObject = state.enabled.get();
    check_cupti(cupti::api().range_stop(&stop), "cuptiRangeProfilerStop");
    if (stop.isAllPassSubmitted != 0) break;
  }

  auto decode = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params);
  decode.pRangeProfilerObject = state.enabled.get();
  check_cupti(cupti::api().range_decode(&decode), "cuptiRangeProfilerDecodeData");
  auto info = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
  info.pCounterDataImage = state.counter_data.data();
  info.counterDataImageSize = state.counter_data.size();
  check_cupti(cupti::api().range_data_info(&info), "cuptiRangeProfilerGetCounterDataInfo");
  if (decode.numOfRangeDropped != 0 || info.numTotalRanges != 1)
    throw CountersUnavailable(CounterStatus::failed,
                              fmt::format("counters: {} ranges were dropped and {} collected, instead of 0 and 1",
                                          decode.numOfRangeDropped, info.numTotalRanges));

  const std::vector<double> values = state.host.evaluate(state.counter_data, 0, state.metrics);
  std::map<std::string, double> result;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i]))
      throw CountersUnavailable(CounterStatus::failed, fmt::format("counters: {} has no value", state.metrics[i]));
    result[state.names[i]] = values[i];
  }
  return result;
}

CounterProbe probe_counters() {
  try {
    const RangeProfiler profiler(row_metrics());
    return {};
  } catch (const CountersUnavailable& error) {
    return {error.status(), error.what()};
  }
}

}  // namespace noisefloor
