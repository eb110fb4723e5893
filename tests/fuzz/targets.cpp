#include "tests/fuzz/targets.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/sweep/problem_files.h"
#include "reports/run/sweep_csv.h"

namespace noisefloor::fuzz {

std::span<const Target> targets() {
  // Twice: problems are counted as they come, so their array doubles while it grows.
  static constexpr Target all[] = {
      {"problem_text", problem_text},
      {"problem_csv", problem_csv, 2 * sizeof(ProblemEntry)},
      {"sweep_csv", sweep_csv, sizeof(SweepRow)},
      {"samples", samples},
      {"environment", environment},
      {"safetensors", safetensors},
  };
  return all;
}

const Target& target(const char* name) {
  for (const Target& candidate : targets())
    if (std::strcmp(candidate.name, name) == 0) return candidate;
  std::fprintf(stderr, "no fuzz target '%s'\n", name);
  std::exit(2);
}

}  // namespace noisefloor::fuzz
