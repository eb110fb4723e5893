// Where the tests' problems are: found from the program, as the shipped ones are, in a checkout and in a bundle.
#pragma once

#include "bench/sweep/problem_files.h"

namespace noisefloor {

inline std::filesystem::path test_problem_folder() {
  return default_problem_folder().parent_path().parent_path() / "tests" / "problems";
}

}  // namespace noisefloor
