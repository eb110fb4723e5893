// What is normalised, as host code reads it.
#pragma once

#include <algorithm>

#include "kernels/core/parallel.h"
#include "kernels/groupnorm/groupnorm.h"

namespace noisefloor::groupnorm {

// `count` channels from `first` on of a pixel of all images, of x or skip or both.
inline void load_channels(const Problem& p, DType dtype, const Tensors& t, std::int64_t pixel, std::int64_t first,
                          std::int64_t count, float* out) {
  const std::int64_t of_x = std::clamp<std::int64_t>(p.x_channels() - first, 0, count);
  if (of_x > 0) load_floats(dtype, t.x, pixel * p.x_channels() + first, of_x, out);
  if (of_x < count)
    load_floats(dtype, t.skip, pixel * p.skip_channels + first + of_x - p.x_channels(), count - of_x, out + of_x);
}

}  // namespace noisefloor::groupnorm
