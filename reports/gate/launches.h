// Which kernels the rows of two runs launch: what appeared, vanished, or is launched more or less often.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "reports/gate/compare.h"

namespace noisefloor {

// The same change in one or more rows of a variant.
struct LaunchChange {
  struct Kernel {
    std::string name;
    std::size_t before = 0, after = 0;  // launches of it in one launch of the row
  };
  std::vector<const SweepRow*> rows;
  std::vector<Kernel> kernels;
  bool of_library = false;  // then it is the library's business
};

struct LaunchChanges {
  std::vector<LaunchChange> changes;  // ours first, then by number of rows
  std::size_t compared = 0;           // rows whose kernels both runs know
  std::size_t known_to_one = 0;       // and that one of them knows
  std::vector<const SweepRow*> lost;  // of these, what `a` knows

  std::size_t ours() const;  // changes of our rows
};
LaunchChanges launch_changes(const RunFiles& a, const RunFiles& b, std::span<const RowPair> pairs);

// "appears", "vanishes", "2 -> 3 launches".
std::string what_changed(const LaunchChange::Kernel& kernel);

}  // namespace noisefloor
