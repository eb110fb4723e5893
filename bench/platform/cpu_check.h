// Whether this CPU has what the program was compiled for. Linked into every program, whose start ends with a sentence
// and exit code 2 where it does not: the first instruction that is missing would be a SIGILL. Levels are those of
// x86-64: 1 is every such CPU, 4 has AVX-512.
#pragma once

#include <cstddef>

namespace noisefloor {

int cpu_level();  // of this CPU; 0 where it is not x86-64

// Writes the sentence for a CPU of level `has`, and returns true, where that is below `needs`.
bool cpu_is_too_old(int needs, int has, char* sentence, std::size_t bytes);

}  // namespace noisefloor
