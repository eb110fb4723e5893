// Which of the products' tiles the sm_80 rung uses for a convolution, and into how many parts it splits k.
#pragma once

#include "kernels/convolution/convolution.h"
#include "kernels/product/sm80_plan.h"

namespace noisefloor::convolution {

struct Sm80Plan {
  product::Sm80Tile tile = product::Sm80Tile::medium_128x64;
  int splits = 1;                  // parts of k, summed in order by a second kernel
  std::int64_t phase_tiles_m = 0;  // tiles along the rows of one phase
  std::int64_t tiles_n = 0;
  int phases = 1;

  std::int64_t blocks() const { return phases * phase_tiles_m * tiles_n * splits; }
};

Sm80Plan choose_sm80_plan(const Convolution& convolution, const DeviceInfo& device);

}  // namespace noisefloor::convolution
