// samples.jsonl.
#include <cstdlib>
#include <stdexcept>

#include "reports/run/run_files.h"
#include "tests/fuzz/input_file.h"

namespace noisefloor::fuzz {

void samples(Input input) {
  const InputFile file(input);
  try {
    for (const auto& [key, samples] : read_samples(file.path())) {
      std::size_t batched = 0;
      for (const std::size_t batch : samples.cold_batches) batched += batch;
      if (!samples.cold_batches.empty() && batched != samples.cold_us.size()) std::abort();
      if (samples.kernels.size() != samples.kernel_counts.size()) std::abort();
      for (const double time : samples.cold_us)
        if (!(time > 0)) std::abort();
    }
  } catch (const std::runtime_error&) {
  }
}

}  // namespace noisefloor::fuzz
