// How ptx_sm90a cuts a problem into tiles, splits and clusters. Host code, pure functions: testable without a GPU.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/gemm/gemm.h"

namespace noisefloor::gemm {

// A compiled tile of the kernel: block_n rows of B and 64 rows of A per consumer warpgroup, and how many k-steps of 64
// are in flight: `stages` where blocks_per_sm blocks share an SM, deep_stages where a block has an SM to itself. In
// ping-pong, consumers have all 128 rows of alternate tiles, so that one's epilogue runs under the other's products.
struct Tile {
  int consumers;
  int block_n;
  int blocks_per_sm;
  int stages;
  int deep_stages;
  bool pingpong = false;

  constexpr int block_m() const { return 64 * consumers; }
};

inline constexpr int kBlockK = 64;  // 128 bytes of a 16-bit type: one swizzle row

inline constexpr std::array<Tile, 10> kTiles = {{
    {2, 256, 1, 4, 4},
    {2, 192, 1, 4, 4},
    {2, 160, 1, 5, 5},
    {2, 128, 1, 6, 6},
    {2, 128, 1, 6, 6, true},
    {2, 80, 1, 7, 7},
    {1, 128, 2, 4, 9},
    {1, 80, 2, 5, 11},
    {1, 64, 2, 6, 13},
    {1, 32, 2, 8, 18},
}};

// Whether blocks of a cluster can share an output tile of this shape: the partial sums of two must fit in the stages.
constexpr bool can_split(const Tile& tile) {
  return tile.block_n <= 160 && !tile.pingpong;
}

struct Schedule {
  int tile = 0;                 // index into kTiles
  int multicast = 1;            // 1 or 2 blocks, neighbours in m, that share each tile of B
  int stages = 4;               // k-steps in flight
  int splits = 1;               // blocks of a cluster that share one output tile, each with its part of k
  std::int64_t m_clusters = 0;  // output tiles along m, in units of `multicast`
  std::int64_t n_tiles = 0;
  std::int64_t grid = 0;  // blocks; fewer than the tiles where blocks are persistent (splits == 1)

  int cluster() const { return multicast * splits; }
};

// The counts that follow from a tile, a multicast and a split.
Schedule make_schedule(const Problem& problem, int tile, int multicast, int splits, int sm_count);

// Modelled time of a schedule in SM cycles; only its order means anything.
double modelled_cycles(const Problem& problem, const Schedule& schedule, int sm_count);

// The schedule of least modelled time, the earlier of equals. sm_count >= 1.
Schedule choose(const Problem& problem, int sm_count);

// Launches ptx_sm90a with a given schedule (launchers.h has the one that chooses). For tests and tuning.
Status launch_ptx_sm90a_scheduled(const Problem& problem, DType dtype, const Tensors& tensors, const Schedule& schedule,
                                  const LaunchContext& context);

}  // namespace noisefloor::gemm
