// ncu's raw page as CSV.
#include "reports/gate/ncu_csv.h"

#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "tests/fuzz/targets.h"

namespace noisefloor::fuzz {

void ncu_csv(Input input) {
  try {
    const auto launches = parse_ncu_csv({reinterpret_cast<const char*>(input.data()), input.size()});
    if (launches.empty()) std::abort();
    for (const NcuLaunch& launch : launches)
      for (const double value :
           {launch.time_us, launch.dram_read_bytes, launch.dram_write_bytes, launch.occupancy_pct, launch.sm_clock_mhz})
        if (!std::isfinite(value) || value < 0) std::abort();
  } catch (const std::runtime_error&) {
  }
}

}  // namespace noisefloor::fuzz
