// The limits of a process (ulimit, the cgroup's, OMP_*), as this program meets them.
#pragma once

#include <string>

namespace noisefloor {

// At the start of main(). Raises a limit of the stack that is below kHostStack as far as it may be, and gives threads
// 8 MiB each: they would have the limit's size, be it 64 KiB or 100 GiB. Throws std::runtime_error where the stack
// stays too small.
void require_stack();

// The limit that an error of the system may come from, to stand behind what failed: "; no more processes or threads can
// be made (ulimit -u is 32; a container may allow fewer)". Empty where it comes from none.
std::string limit_behind(int error);

// Where fewer threads run than OpenMP was asked for, why: "2 threads run, not 100000 as OMP_NUM_THREADS
// says: this process has 2 processors". Else empty.
std::string why_fewer_threads();

// How threads of OpenMP wait for each other. Left alone, libgomp's spin for some milliseconds: where another program
// runs on one of the cores, the launch waits until the scheduler takes the spinning thread off, and a launch of 50 us
// takes 8 ms.
//
// Lets waiting threads sleep after about a tenth of a millisecond. libgomp reads its settings before main, so the
// program is started again with them; this does not return then. A setting of the user's (OMP_WAIT_POLICY,
// GOMP_SPINCOUNT) is left as it is. To be called before anything was opened or written.
void wait_briefly();

// "OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=4400", or "default".
std::string openmp_waiting();

}  // namespace noisefloor
