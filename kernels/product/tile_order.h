// The order of tiles in the ptx_sm90a kernels of products.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/device/divider.h"

namespace noisefloor::product {

inline constexpr int kGroupM = 8;  // clusters along m that are walked before the next tile along n

// Of a kernel whose neighbours in n share A, n_tile counts clusters of them.
struct TileIndex {
  int m_cluster, n_tile;
};

// Tiles in the order of groups of kGroupM clusters, column by column within a group: blocks that run at the same time
// then share rows of A and of B in L2.
class Rasterisation {
 public:
  // At most 2^31 - 1 tiles.
  constexpr Rasterisation(std::int64_t m_clusters, std::int64_t n_tiles)
      : tiles_(static_cast<int>(m_clusters * n_tiles)),
        last_group_(static_cast<int>(m_clusters / kGroupM)),
        group_(static_cast<int>(std::min<std::int64_t>(kGroupM * n_tiles, INT32_MAX))),
        last_rows_(std::max(static_cast<int>(m_clusters % kGroupM), 1)) {}

  constexpr int tiles() const { return tiles_; }
  constexpr TileIndex locate(int index) const {
    const int group = index / group_;
    const int within = index - group * group_;
    const int n_tile = group < last_group_ ? within / kGroupM : within / last_rows_;
    const int rows = group < last_group_ ? kGroupM : static_cast<int>(last_rows_);
    return {group * kGroupM + within - n_tile * rows, n_tile};
  }

 private:
  int tiles_, last_group_;  // the last group has fewer clusters, or none
  Divider group_, last_rows_;
};

}  // namespace noisefloor::product
