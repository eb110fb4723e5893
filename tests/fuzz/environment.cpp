// env.json.
#include <cstdlib>
#include <stdexcept>

#include "reports/run/run_files.h"
#include "tests/fuzz/input_file.h"

namespace noisefloor::fuzz {

void environment(Input input) {
  const InputFile file(input);
  try {
    const RunEnvironment environment = read_environment(file.path());
    if (environment.schema < 1 || environment.schema > kRunSchema) std::abort();
  } catch (const std::runtime_error&) {
  }
}

}  // namespace noisefloor::fuzz
