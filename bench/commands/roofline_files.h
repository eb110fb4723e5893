// What is made of a run's rows and ceilings, for the commands that make it.
#pragma once

#include <filesystem>

namespace noisefloor {

// roofline.csv, totals.csv, plan.csv and report.html of a run; prints its tables. Throws InvalidInput where it has no
// rows.
void write_roofline_files(const std::filesystem::path& run);

}  // namespace noisefloor
