// sweep.csv.
#include "reports/run/sweep_csv.h"

#include <cstdlib>
#include <stdexcept>

#include "tests/fuzz/input_file.h"

namespace noisefloor::fuzz {

void sweep_csv(Input input) {
  const InputFile file(input);
  std::vector<SweepRow> rows;
  try {
    rows = read_sweep_csv(file.path());
  } catch (const std::runtime_error&) {
    return;
  }
  // What was read can be written, and read as the same.
  for (const SweepRow& row : rows) {
    const auto others = other_columns({row});
    const std::string line = to_csv(row, others), text = sweep_csv_header(others) + line;
    const InputFile again({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    const auto same = read_sweep_csv(again.path());
    if (same.size() != 1 || to_csv(same[0], others) != line) std::abort();
  }
}

}  // namespace noisefloor::fuzz
