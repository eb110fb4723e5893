// A random search for the constants whose choices take the least time.
#pragma once

#include <cstdint>
#include <span>

#include "bench/fit/timings.h"

namespace noisefloor::fit {

// Geometric mean, over the problems of one half, of the time of the model's choice to the best timed.
double loss(const product::Sm90aKernel& kernel, const Timings& timings, bool unseen);

// The constants of least loss on the half that is seen, of `rounds` tries: each changes some of the best so far by
// random factors, within constants()' ranges. Of equals those nearer to the kernel's present ones are taken, so that
// what the timings say nothing of stays. A constant that is 0 does, too. One seed gives one result.
product::Sm90aCosts search(const product::Sm90aKernel& kernel, bool turn_is_fill, const Timings& timings,
                           std::uint64_t seed, int rounds);

}  // namespace noisefloor::fit
