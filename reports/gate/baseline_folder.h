// The folder of a run as a baseline: what speaks against a run, and replacing one by another.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "reports/gate/gate.h"

namespace noisefloor {

// One sentence each: interrupted, measured beside other programs, rows without a time because of that or of heat, all
// of it much faster than the baseline (which was then measured beside others). `against` may be null: there is no
// baseline yet.
std::vector<std::string> doubts_about(const RunFiles& candidate, const GateResult* against);

// Puts the files of the run `candidate` in the place of the run `baseline`, all at once: a reader finds the old run or
// the new one, or, where the folder itself cannot be exchanged (a mount point), for a moment one without sweep.csv,
// which no reader takes. Files in `baseline` that no command writes (a README) stay; what was made from the old run
// (roofline.csv, report.html, ...) goes. Where there is no such folder it is made. Throws std::runtime_error, with the
// baseline as it was, where it holds something else than a run, either folder is being written, one lies within the
// other, or the disk refuses.
void replace_baseline(const std::filesystem::path& baseline, const std::filesystem::path& candidate);

}  // namespace noisefloor
