#include "bench/commands/image_layout.h"

#include <algorithm>

namespace noisefloor {

std::vector<std::int64_t> channels_first_shape(std::vector<std::int64_t> channels_last) {
  std::rotate(channels_last.end() - 3, channels_last.end() - 1, channels_last.end());
  return channels_last;
}

}  // namespace noisefloor
