// What the folder of a sweep that is resumed must be of, and what is put right in it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/ceilings/store.h"
#include "bench/measure/case_result.h"
#include "bench/measure/worker.h"
#include "bench/platform/platform.h"
#include "reports/run/run_folder.h"

namespace noisefloor {

// Rows that one folder has are compared: they are of one driver, and of one version of each library. Both throw
// InvalidInput.
void require_same_software(const RunFolder& folder, const nlohmann::ordered_json& facts);
void require_same_pytorch(const RunFolder& folder, Worker& worker);

// Column gpu_uuid tells them apart.
void warn_of_another_gpu(const RunFolder& folder, const PlatformDescription& description);

// A row above a host's roof says that the roof is too low, as where it was measured beside other programs: it is
// measured again, and kept in the folder. True where it was. What reads more than it writes may stay above a copy.
bool raise_beaten_roof(const RunFolder& folder, std::vector<CaseResult>& results, Ceilings& ceilings,
                       const CeilingsLog& log);

}  // namespace noisefloor
