#include "bench/counters/range_profiler.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "bench/counters/counter_config.h"
#include "bench/counters/cupti_api.h"

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

  // One of the calls that take the object, whose parameter block the caller has filled but for that.
  template <class Params>
  void call(CUptiResult (*function)(Params*), Params& params, const char* name) const {
    params.pRangeProfilerObject = object_;
    check_cupti(function(&params), name);
  }

 private:
  CUpti_RangeProfiler_Object* object_ = nullptr;
};

class CuptiRangeProfiler final : public RangeProfiler {
 public:
  CuptiRangeProfiler(int device, CUcontext context) : config_(row_counter_config(device, context)), enabled_(context) {
    // Asked of every object that is enabled: it lays the counter data out by what it was asked for here.
    auto size = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataSize_Params);
    size.pMetricNames = config_.metrics().data();
    size.numMetrics = config_.metrics().size();
    size.maxNumOfRanges = 1;
    size.maxNumRangeTreeNodes = 1;
    enabled_.call(cupti::api().range_data_size, size, "cuptiRangeProfilerGetCounterDataSize");
    counter_data_.resize(size.counterDataSize);
  }

  std::map<std::string, double> measure(const std::function<void(int pass)>& before_pass,
                                        const std::function<void()>& launch) override {
    configure();
    const std::size_t most = 2 * config_.passes() + 2;  // more than that, and the replay does not end
    bool last = false;
    for (std::size_t pass = 0; !last; ++pass) {
      if (pass == most)
        throw CountersUnavailable(
            CounterStatus::failed,
            fmt::format("counters: the replay does not end after {} passes of {}", pass, config_.passes()));
      if (before_pass) before_pass(static_cast<int>(pass));
      check_cuda(cudaDeviceSynchronize(), "before a counted launch");
      last = run_pass(launch);
    }
    decode();
    return config_.evaluate(counter_data_);
  }

 private:
  // Empties the counter data and starts the replay from its first pass.
  void configure() {
    auto clear = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_CounterDataImage_Initialize_Params);
    clear.counterDataSize = counter_data_.size();
    clear.pCounterData = counter_data_.data();
    enabled_.call(cupti::api().range_data_initialize, clear, "cuptiRangeProfilerCounterDataImageInitialize");

    auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_SetConfig_Params);
    params.configSize = config_.image().size();
    params.pConfig = config_.image().data();
    params.counterDataImageSize = counter_data_.size();
    params.pCounterDataImage = counter_data_.data();
    params.range = CUPTI_UserRange;
    params.replayMode = CUPTI_UserReplay;
    params.maxRangesPerPass = 1;
    params.numNestingLevels = 1;
    params.minNestingLevel = 1;
    params.passIndex = 0;
    params.targetNestingLevel = 1;
    enabled_.call(cupti::api().range_set_config, params, "cuptiRangeProfilerSetConfig");
  }

  // One pass; whether it was the last.
  bool run_pass(const std::function<void()>& launch) {
    auto start = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_Start_Params);
    enabled_.call(cupti::api().range_start, start, "cuptiRangeProfilerStart");
    auto push = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_PushRange_Params);
    push.pRangeName = kRangeName;
    enabled_.call(cupti::api().range_push, push, "cuptiRangeProfilerPushRange");
    launch();
    check_cuda(cudaDeviceSynchronize(), "the counted launch");
    auto pop = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_PopRange_Params);
    enabled_.call(cupti::api().range_pop, pop, "cuptiRangeProfilerPopRange");
    auto stop = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_Stop_Params);
    enabled_.call(cupti::api().range_stop, stop, "cuptiRangeProfilerStop");
    return stop.isAllPassSubmitted != 0;
  }

  // The hardware's data becomes counter data, of one range.
  void decode() {
    auto params = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_DecodeData_Params);
    enabled_.call(cupti::api().range_decode, params, "cuptiRangeProfilerDecodeData");
    auto info = NOISEFLOOR_CUPTI_PARAMS(CUpti_RangeProfiler_GetCounterDataInfo_Params);
    info.pCounterDataImage = counter_data_.data();
    info.counterDataImageSize = counter_data_.size();
    check_cupti(cupti::api().range_data_info(&info), "cuptiRangeProfilerGetCounterDataInfo");
    if (params.numOfRangeDropped != 0 || info.numTotalRanges != 1)
      throw CountersUnavailable(CounterStatus::failed,
                                fmt::format("counters: {} ranges were dropped and {} collected, instead of 0 and 1",
                                            params.numOfRangeDropped, info.numTotalRanges));
  }

  OnlyOne<RangeProfiler> only_one_{"counters: another RangeProfiler of this process is still alive"};
  CounterConfig& config_;
  Enabled enabled_;
  std::vector<std::uint8_t> counter_data_;
};

}  // namespace

std::unique_ptr<RangeProfiler> open_range_profiler() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  check_cuda(cudaFree(nullptr), "creating the CUDA context");
  initialize_cupti();
  return std::make_unique<CuptiRangeProfiler>(device, current_context());
}

CounterProbe probe_counters() {
  try {
    (void)open_range_profiler();
    return {};
  } catch (const CountersUnavailable& error) {
    return {error.status(), error.what()};
  }
}

std::string cupti_version() {
  std::uint32_t version = 0;  // 10,000 x major + 100 x minor + patch from CUDA 13.0 on; before, a small number
  try {
    if (cupti::api().version(&version) != CUPTI_SUCCESS) return {};
  } catch (const CountersUnavailable&) {
    return {};
  }
  if (version < 10000) return std::to_string(version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace noisefloor
