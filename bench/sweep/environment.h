// What env.json of a run folder says of the device, its machine and the build.
#pragma once

#include <nlohmann/json.hpp>

#include "bench/platform/nvml.h"
#include "bench/platform/platform.h"

namespace noisefloor {

// `monitor`: NVML's, of that device. Libraries and load are those of this moment.
nlohmann::ordered_json environment_facts(const PlatformDescription& description, const GpuMonitor& monitor);

// How a GPU is set up; what it does not report is left out.
nlohmann::ordered_json gpu_facts(const GpuDescription& gpu);

}  // namespace noisefloor
