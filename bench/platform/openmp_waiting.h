// How threads of OpenMP wait for each other. Left alone, libgomp's spin for some milliseconds: where another program
// runs on one of the cores, the launch waits until the scheduler takes the spinning thread off, and a launch of 50 us
// takes 8 ms.
#pragma once

#include <string>

namespace noisefloor {

// Lets waiting threads sleep after about a tenth of a millisecond. libgomp reads its settings before main, so the
// program is started again with them; this does not return then. A setting of the user's (OMP_WAIT_POLICY,
// GOMP_SPINCOUNT) is left as it is. To be called before anything was opened or written.
void wait_briefly();

// "OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=4400", or "default".
std::string openmp_waiting();

}  // namespace noisefloor
