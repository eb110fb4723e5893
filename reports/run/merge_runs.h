// One run folder out of several: the parts of sweeps that were split, or sweeps of different ops.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace noisefloor {

struct MergeOptions {
  bool replace = false;  // what an earlier merge wrote; anything else is never replaced
  bool partial = false;  // go on where parts or cases of a split sweep are missing
  // An earlier run of the same kind of device and driver, of any commit: of problems that no folder has, its rows are
  // kept, as `sweep --reuse` keeps rows. Empty: none.
  std::filesystem::path over;
};

struct MergeResult {
  std::size_t rows = 0, failed = 0;  // failed: incorrect, or on the device
  std::vector<std::string> missing;  // in words; only with `partial`, or of `over`
  std::vector<std::string> notes;    // in what the parts' GPUs differ, and whether one problem's rows are of several
};

// Merges into `out`, a new folder, which appears whole or not at all. All must be of one device, driver, commit and
// build of it (baselines' rows: of one cuBLASLt, cuDNN and PyTorch), no case may be in two of them, every timed row
// must have its samples, and parts of split sweeps must be all parts of each with all of their cases. Ceilings are the
// medians of theirs (not of `over`'s); rows keep the figures that they have. Throws std::runtime_error naming folder
// and case. No folder may be written meanwhile.
MergeResult merge_runs(const std::vector<std::filesystem::path>& folders, const std::filesystem::path& out,
                       const MergeOptions& options);

}  // namespace noisefloor
