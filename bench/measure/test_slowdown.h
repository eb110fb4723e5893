// For testing the gate, in builds with NOISEFLOOR_TEST_SLOWDOWN_PERCENT alone (see bench/CMakeLists.txt): a launch that
// takes some percent longer than the one it holds.
#pragma once

#include <span>
#include <utility>

#include "bench/platform/platform.h"

namespace noisefloor {

// `launch` with a spin behind it, inside whatever interval times it. The spin is adjusted until the cold median is
// `percent` above that of `launch` alone: on a GPU the spin's own launch costs time too, so a wanted addition below
// that (about a microsecond) comes out larger. What was reached goes to stderr. `resident` as in Platform::time_cold().
Launch slowed_down(Platform& platform, const Launch& launch, std::span<const std::pair<void*, std::size_t>> resident,
                   double percent);

// The percent of this build, or of the environment variable NOISEFLOOR_TEST_SLOWDOWN_PERCENT where it is set (0 to 100;
// throws std::invalid_argument else), so that one slow build serves every aim of the gate. Rows do
// not tell: their commit has the percent of the build.
double slowdown_percent(double of_build);

// Enqueues a kernel of one thread that spins for `nanoseconds` of an SM at 1 GHz. Builds with CUDA only.
Status enqueue_spin(Stream stream, double nanoseconds);

}  // namespace noisefloor
