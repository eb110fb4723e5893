// "m=4096,n=320,act=silu", the text of a problem, for every op.
#include <cstdlib>

#include "kernels/catalogue.h"
#include "tests/fuzz/targets.h"

namespace noisefloor::fuzz {

void problem_text(Input input) {
  const std::string_view text(reinterpret_cast<const char*>(input.data()), input.size());
  for (const Op& op : catalogue()) {
    std::string canonical;
    try {
      canonical = op.print(op.parse_pairs(split_problem_text(text)));
    } catch (const InvalidInput&) {
      continue;
    }
    // Outside the try: the canonical text of a problem is one.
    if (op.print(op.parse_pairs(split_problem_text(canonical))) != canonical) std::abort();
  }
}

}  // namespace noisefloor::fuzz
