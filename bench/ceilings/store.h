// Ceilings as a per-user cache.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "bench/ceilings/ceilings.h"

namespace noisefloor {

// $XDG_CACHE_HOME/noisefloor, else $HOME/.cache/noisefloor; empty when neither variable is set.
std::filesystem::path cache_folder();

// ceilings-<device>-<driver>-<clock>.csv, letters and digits only within each part.
std::string cache_file_name(const DeviceIdentity& identity);

enum class CeilingsProcess { own, this_one };
using MeasureHost = std::function<Ceilings()>;

// The cached ceilings of a device (kHostDevice: the host), or measured ones, which are then cached. `refresh` measures
// always. A host's that were taken under load, or do not say, are taken again as soon as the machine is quieter; of
// both the higher ones stay. A cache that cannot be read is measured again, one that cannot be written is skipped; both
// with a warning through `log`. A GPU's are measured in a process of their own, unless this is that one.
Ceilings load_or_measure(int device, bool refresh, const std::string& commit, const CeilingsLog& log,
                         CeilingsProcess process = CeilingsProcess::own,
                         const MeasureHost& measure_host = measure_host_ceilings);

// What `program ceilings` measures of a GPU: the first process, which measured them itself, was slower than all others
// in every launch (docs/experiments/measuring, the gate on an H200). Where it fails (one process a GPU, no folder for
// temporary files), `here` measures them, with a warning that says why.
Ceilings measure_apart(const std::filesystem::path& program, int device, const CeilingsLog& log,
                       const std::function<Ceilings()>& here);

// A host's that were beaten: measured again and cached, of both the higher ones.
Ceilings raise_host_ceilings(const Ceilings& known, const std::string& commit, const CeilingsLog& log,
                             const MeasureHost& measure_host = measure_host_ceilings);

}  // namespace noisefloor
