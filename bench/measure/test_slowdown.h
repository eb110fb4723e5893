// For testing the gate, in builds with NOISEFLOOR_TEST_SLOWDOWN_PERCENT alone (see bench/CMakeLists.txt): launches that
// take some percent longer than they do.
#pragma once

#include "bench/measure/platform_timing.h"

namespace noisefloor {

// Puts a spin inside of whatever is timed, in the launches' own stream order, behind the last launch of a sample, as
// long as a spin must be by what it costs: cold, behind that launch; warm, in a chain of spins, because the difference
// of two warm medians scatters by much of what is wanted. It is found at the first call for a phase. On a GPU the
// spin's own launch costs about a microsecond: where that is more than is wanted (a short cold launch) nothing is
// slowed, and the other phase must show it. What was reached goes to stderr. `platform` must outlive it.
Slowed test_slowdown(Platform& platform, double percent);

// The percent of this build, or of the environment variable NOISEFLOOR_TEST_SLOWDOWN_PERCENT where it is set (0 to 100;
// throws std::invalid_argument else), so that one slow build serves every aim of the gate. Rows do
// not tell: their commit has the percent of the build.
double slowdown_percent(double of_build);

// Enqueues a kernel of one thread that spins for `nanoseconds` of an SM at 1 GHz. Builds with CUDA only.
Status enqueue_spin(Stream stream, double nanoseconds);

}  // namespace noisefloor
