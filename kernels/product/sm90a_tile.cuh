// The order of tiles in the ptx_sm90a kernels of products. Device code only.
#pragma once

namespace noisefloor::product {

inline constexpr int kGroupM = 8;  // clusters along m that are walked before the next tile along n

struct TileIndex {
  int m_cluster, n_tile;
};

// Tiles in the order of groups of kGroupM clusters, column by column within a group: blocks that run at the same time
// then share rows of A and of B in L2.
__device__ __forceinline__ TileIndex locate(int index, int m_clusters, int n_tiles) {
  const int group = index / (kGroupM * n_tiles);
  const int rows = min(m_clusters - group * kGroupM, kGroupM);
  const int within = index - group * kGroupM * n_tiles;
  return {group * kGroupM + within % rows, within / rows};
}

}  // namespace noisefloor::product
