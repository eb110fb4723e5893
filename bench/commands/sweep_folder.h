// What the folder of a sweep that is resumed must be of, and what is put right in it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/ceilings/store.h"
#include "bench/measure/worker.h"
#include "bench/platform/platform.h"
#include "reports/run/run_folder.h"

namespace noisefloor {

// Rows that one folder has are compared: they are of one driver, and of one version of each library. Both throw
// InvalidInput.
void require_same_software(const RunFolder& folder, const nlohmann::ordered_json& facts);
void require_same_pytorch(const RunFolder& folder, Worker& worker);

// Rows of one problem come from one GPU: those that another one has left half done are measured anew.
void drop_half_done(RunFolder& folder, const std::vector<CaseId>& cases, const PlatformDescription& description);

// Rows that wait for counters in vain, because their process ended first, are measured anew.
void drop_uncounted(RunFolder& folder, const std::vector<CaseId>& cases);

// A row above the roof says that the roof is too low, as where it was measured beside other programs: it is measured
// once more. What reads more than it writes may stay above a copy.
void raise_beaten_roof(RunFolder& folder, Ceilings ceilings, const CeilingsLog& log);

}  // namespace noisefloor
