// The options that say which cases: of `sweep` and `ab`.
#pragma once

#include <string>
#include <vector>

#include "bench/sweep/selection.h"

namespace CLI {
class App;
}

namespace noisefloor {

struct SelectionOptions {
  std::string ops, networks, without, variants, kinds, dtypes = "bf16", problems;

  // `default_kinds`: what the help says of --kinds.
  void add_to(CLI::App& command, const char* default_kinds);
  std::vector<ProblemEntry> load() const;  // throws InvalidInput
  // Without --networks the default ones, which are fewer on a host. Throws InvalidInput.
  Selection selection(const std::vector<ProblemEntry>& loaded, bool host) const;
};

}  // namespace noisefloor
