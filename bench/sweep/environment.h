// What env.json of a run folder says of the device and the build.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/platform/platform.h"

namespace noisefloor {

// `driver_version`: NVML's; empty where it is not known.
nlohmann::ordered_json environment_facts(const PlatformDescription& description, const std::string& driver_version);

}  // namespace noisefloor
