// For testing the gate, in builds with NOISEFLOOR_TEST_SLOWDOWN_PERCENT alone (see bench/CMakeLists.txt): launches that
// take some percent longer than they do.
#pragma once

#include "bench/measure/platform_timing.h"

namespace noisefloor {

// Puts a spin inside of whatever is timed, in the launches' own stream order: behind the launch of a cold sample, and
// behind the last launch of a warm one, so that a graph has one. Cold, it is adjusted until the median is `percent`
// above that of the launches alone; warm, its length is computed from what spins cost in a chain, not adjusted. On a
// GPU the spin's own launch costs about a microsecond: where that is more than is wanted (a short cold launch) nothing
// is slowed, and the other phase must show it. What was reached goes to stderr. `platform` and what the launches need
// must outlive them.
void slow_down(Platform& platform, PlatformTiming::Ranges resident, double percent, PlatformTiming::Launches& launches);

// The percent of this build, or of the environment variable NOISEFLOOR_TEST_SLOWDOWN_PERCENT where it is set (0 to 100;
// throws std::invalid_argument else), so that one slow build serves every aim of the gate. Rows do
// not tell: their commit has the percent of the build.
double slowdown_percent(double of_build);

// Enqueues a kernel of one thread that spins for `nanoseconds` of an SM at 1 GHz. Builds with CUDA only.
Status enqueue_spin(Stream stream, double nanoseconds);

}  // namespace noisefloor
