#include "bench/counters/counter_status.h"

#include <fmt/format.h>

#include <array>

#include "bench/counters/launch_signature.h"

namespace noisefloor {
namespace {

struct Meaning {
  int result;  // CUptiResult, by number so that host builds can say it too
  CounterStatus status;
  const char* text;
};

// Numbers and causes: cupti_result.h of CUDA 13.
constexpr std::array kMeanings = {
    Meaning{2, CounterStatus::no_device,
            "the device is not one that CUPTI knows; is the driver older than this CUPTI?"},
    Meaning{8, CounterStatus::failed, "CUPTI ran out of memory; free device or host memory and try again"},
    Meaning{11, CounterStatus::failed, "this CUPTI does not implement the call; use that of CUDA 13.0 or newer"},
    Meaning{14, CounterStatus::busy, "another use of CUPTI in this process excludes it; run without other profilers"},
    Meaning{17, CounterStatus::unsupported_chip, "a metric name is not known for this chip"},
    Meaning{26, CounterStatus::busy,
            "another profiler holds the counters (Nsight, DCGM); stop it, or `dcgmi profile --pause`"},
    Meaning{27, CounterStatus::unsupported_device, "CUPTI does not support counters on this system"},
    Meaning{33, CounterStatus::unsupported_device,
            "the GPU is virtualised without counters; use one passed through whole"},
    Meaning{
        35, CounterStatus::no_permission,
        "counters need permission: run as root (in a container with --cap-add SYS_ADMIN), or load the kernel module "
        "with NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"},
    Meaning{36, CounterStatus::busy, "an older profiler API was already used in this process; run without other tools"},
    Meaning{38, CounterStatus::unsupported_device, "the GPU is of a generation without this profiler (it needs sm_75)"},
    Meaning{39, CounterStatus::busy, "another tool is attached to CUPTI in this process; run without it"},
    Meaning{40, CounterStatus::no_permission,
            "the GPU is virtualised and its host does not permit counters; the host's administrator can permit them "
            "for this virtual machine (vGPU plugin parameter enable_profiling)"},
    Meaning{41, CounterStatus::unsupported_device,
            "confidential-computing mode hides counters; they need that mode off"},
    Meaning{42, CounterStatus::unsupported_device, "mining processors (CMP) have no counters"},
    Meaning{43, CounterStatus::unsupported_device,
            "the device is a MIG slice, which cannot be counted; use a GPU without MIG"},
    Meaning{44, CounterStatus::unsupported_device, "the GPU is linked by SLI; counters need SLI off"},
    Meaning{45, CounterStatus::unsupported_device,
            "WSL has no counters with this driver; update it, or use native Linux"},
    Meaning{46, CounterStatus::unsupported_chip, "this CUPTI does not know the chip; use a newer one"},
};

}  // namespace

const char* to_string(CounterStatus status) {
  constexpr const char* kNames[] = {"ok",       "ok_below_l2",        "off",
                                    "no_cupti", "no_device",          "no_permission",
                                    "busy",     "unsupported_device", "unsupported_chip",
                                    "failed"};
  return kNames[static_cast<std::size_t>(status)];
}

CountersUnavailable counters_unavailable(int cupti_result, const std::string& call) {
  for (const Meaning& meaning : kMeanings)
    if (meaning.result == cupti_result)
      return {meaning.status, fmt::format("{} (CUPTI error {} in {})", meaning.text, cupti_result, call)};
  return {CounterStatus::failed, fmt::format("CUPTI failed with error {} in {}", cupti_result, call)};
}

std::unique_ptr<CodeWatch> watch_code_if_possible(const std::function<void(const std::string&)>& say) {
  try {
    return watch_code();
  } catch (const CountersUnavailable& error) {
    if (say) say(error.what());
    return nullptr;
  }
}

}  // namespace noisefloor
