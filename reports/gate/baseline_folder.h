// The folder of a run as a baseline: replacing it by another run.
#pragma once

#include <filesystem>

namespace noisefloor {

// Puts the files of the run `candidate` in the place of the run `baseline`, all at once: a reader finds the old run or
// the new one. Files in `baseline` that no command writes (a README) stay; what was made from the old run
// (roofline.csv, report.html, ...) goes. Where there is no such folder it is made. Throws std::runtime_error, with the
// baseline as it was, where it is neither a run's folder nor empty, either folder is being written, one lies within the
// other, or the disk refuses.
void replace_baseline(const std::filesystem::path& baseline, const std::filesystem::path& candidate);

}  // namespace noisefloor
