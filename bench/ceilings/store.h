// Ceilings as a file (ceilings.csv of a run folder) and as a per-user cache.
#pragma once

#include <filesystem>
#include <string>

#include "bench/ceilings/ceilings.h"

namespace noisefloor {

// Columns: name,value,unit,datasheet,device,driver,sm_clock_mhz,commit; an unknown datasheet or clock is blank.
// Throws std::runtime_error with the file's name when it cannot be written (it is then left as it was).
void write_ceilings(const std::filesystem::path& file, const Ceilings& ceilings);

// Throws std::runtime_error with file, line and column when the file cannot be read or holds anything but ceilings of
// one device.
Ceilings read_ceilings(const std::filesystem::path& file);

// $XDG_CACHE_HOME/noisefloor, else $HOME/.cache/noisefloor; empty when neither variable is set.
std::filesystem::path cache_folder();

// ceilings-<device>-<driver>-<clock>.csv, letters and digits only within each part.
std::string cache_file_name(const DeviceIdentity& identity);

// The cached ceilings of a device (kHostDevice: the host), or measured ones, which are then cached. `refresh` measures
// always. A cache that cannot be read is measured again, one that cannot be written is skipped; both with a warning
// through `log`.
Ceilings load_or_measure(int device, bool refresh, const std::string& commit, const CeilingsLog& log);

}  // namespace noisefloor
