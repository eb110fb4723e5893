// scripts/fit: fits the constants of the products' model to timings, and says what that is worth.
#pragma once

#include <iosfwd>

namespace noisefloor::fit {

// The command line; its exit code: 0 done, 2 could not be done.
int run(int argc, const char* const* argv, std::ostream& out, std::ostream& errors);

}  // namespace noisefloor::fit
