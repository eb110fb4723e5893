// One of the ways in which a variant can run a problem: its tiles, its split.
#pragma once

#include <string>

namespace noisefloor {

struct Choice {
  std::string text;        // canonical, e.g. "bundle=2,blocks=8,threads=256,held=4"
  bool estimated = false;  // what the variant's own estimate takes
};

}  // namespace noisefloor
