// How the ptx_sm90a variants cut a product into tiles, splits and clusters. Host code, pure functions: testable without
// a GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/core/device.h"
#include "kernels/core/variant.h"

namespace noisefloor::product {

inline constexpr int kBlockK = 64;         // k of a step: 128 bytes of a 16-bit type, one swizzle row
inline constexpr int kRowBytes = 128;      // of a stage's tiles of A and B
inline constexpr int kLargestCluster = 8;  // that every device of the architecture takes
inline constexpr int kMostOfResidual = 2;  // stages that a tile's residual takes, behind its k-steps

// A compiled tile of a kernel: block_n rows of B and 64 rows of A per consumer warpgroup, and how many k-steps are in
// flight: `stages` where blocks_per_sm blocks share an SM, up to deep_stages where a block has an SM to itself. In
// ping-pong, consumers have all 128 rows of alternate tiles, so that one's epilogue runs under the other's products.
struct Sm90aTile {
  int consumers;
  int block_n;
  int blocks_per_sm;
  int stages;
  int deep_stages;
  bool pingpong = false;

  constexpr int block_m() const { return 64 * consumers; }
};

// What is cut: `units` runs of rows that no tile straddles, all with the same B.
struct Sm90aProduct {
  std::int64_t units = 1, unit_rows = 1;
  std::int64_t columns = 1;  // rows of B; 0 where the tile cannot cut it
  std::int64_t k_steps = 1;
  double a_share = 1;       // of a tile's rows of A that a k-step loads
  double b_share = 1;       // of its rows of B, by the time that they take: above 1 where boxes are narrow
  bool own_stages = false;  // where tiles are whole, stages that no neighbour fills follow the steps (a residual's)
};

struct Sm90aSchedule {
  int tile = 0;                    // index into the kernel's tiles
  int multicast = 1;               // 1, 2 or 4 blocks, neighbours in m, that share each tile of B,
  int stages = 4;                  // k-steps in flight; no more than a block with one tile fills
  int splits = 1;                  // blocks of a cluster that share one output tile, each with its part of k
  std::int64_t unit_clusters = 0;  // output tiles along the rows of a unit, in units of `multicast`
  std::int64_t m_clusters = 0;     // of all units
  std::int64_t n_tiles = 0;
  std::int64_t grid = 0;  // blocks; fewer than the tiles where blocks are persistent (splits == 1)
  bool alone = false;     // each block has an SM to itself
  int multicast_a = 1;    // and neighbours in n that share each tile of A; it divides n_tiles

  constexpr int longest_split(std::int64_t k_steps) const { return static_cast<int>((k_steps + splits - 1) / splits); }
  int cluster() const { return multicast * multicast_a * splits; }
  // Whether more share than a pair that has the same tile of B.
  bool shares_widely() const { return multicast > 2 || multicast_a > 1; }
  std::int64_t n_clusters() const { return n_tiles / multicast_a; }
  std::int64_t blocks() const { return m_clusters * n_tiles * multicast * splits; }
  // Stages to ask shared memory for: a block alone asks for all, so that no second one comes to its SM.
  int stages_of_room(const Sm90aTile& shape) const { return alone ? shape.deep_stages : stages; }
};

// SM cycles that things are taken to cost: a fit to timed schedules, so they stand for more than their names say.
// tools/fit makes such a fit.
struct Sm90aCosts {
  double fma_per_cycle;    // of the 2048 of four tensor cores in bf16
  double bytes_per_cycle;  // L2 to one SM
  double load_latency;     // of a stage, under load: `stages` of them are in flight
  double least_step;       // barriers and issue
  double byte;             // what a loaded byte takes from the products (shared memory, power)
  double fill;             // first load to first product
  double store;            // per element of a tile
  double exchange;         // per element of a partial tile sent through distributed shared memory
  double meet;             // a cluster's blocks waiting for each other,
  double meet_per_block;   // and more of them
  double multicast;        // neighbours in lock step, once per launch
  double turn = 0;         // from one consumer's tile to the other's in ping-pong
};

// A kernel's tiles and what they cost.
struct Sm90aKernel {
  std::span<const Sm90aTile> tiles;
  Sm90aCosts costs;
  bool (*can_split)(const Sm90aTile&, int splits);  // whether that many blocks can share a tile; 1 always can
  bool shares_a = false;                            // whether it takes a multicast_a above 1
};

// Of a block with one tile, and of all blocks of its cluster, whose steps may be one fewer.
struct DsmemBuffer {
  int stage = 0;   // the first of its stages, which follow each other
  int opens = -1;  // behind this many steps all of them have been read for the last time; -1: there is none
};

// The stages that so many bytes take.
constexpr int stages_for(int bytes, int stage_bytes) {
  return (bytes + stage_bytes - 1) / stage_bytes;
}

// `room` of a ring of `stages` (room <= stages), in blocks of which the longest has most_steps >= 1. Those stages are
// taken that are free first and do not wrap.
constexpr DsmemBuffer find_dsmem(int most_steps, int stages, int room) {
  const int rounds = most_steps / stages, begun = most_steps - rounds * stages;  // stages of the last round, if begun
  if (begun + room <= stages) {
    const int last = most_steps - stages + room;  // steps up to the last that reads the last of these stages
    return {begun, rounds == 0 ? 0 : last};
  }
  return {0, begun < room ? most_steps : most_steps - begun + room};
}

// Opens no sooner than behind `steps`: where none of a second ring's stages has to come back later. The GPU does not
// hold a warp in barrier.cluster.arrive, but compute-sanitizer does until all have arrived.
constexpr DsmemBuffer opened_behind(const DsmemBuffer& dsmem, int steps) {
  return dsmem.opens < 0 || dsmem.opens >= steps ? dsmem : DsmemBuffer{dsmem.stage, steps};
}

// The counts that follow from a tile, a multicast and a split.
Sm90aSchedule make_schedule(const Sm90aKernel& kernel, const Sm90aProduct& product, int tile, int multicast, int splits,
                            int sm_count, int multicast_a = 1);

// Where the blocks of a split tile exchange sums: in `room` of the schedule's stages. None where tiles are whole.
constexpr DsmemBuffer dsmem_of(const Sm90aSchedule& schedule, std::int64_t k_steps, int room) {
  if (schedule.splits == 1) return {};
  return find_dsmem(schedule.longest_split(k_steps), schedule.stages, room);
}

// Which tensor the weights are: gemm's b, a convolution's w.
inline constexpr int kWeightTensor = 1;
// How many stages' weights are asked for ahead of the wait for the launches before, where they are constant and this
// one may begin early: four. More take the bandwidth of those launches' last loads (docs/experiments/networks, "early
// weights again").
inline constexpr int kEarlyStages = 4;
constexpr int early_stages(const LaunchContext& context, int stages) {
  const bool early = context.programmatic_launch && context.constant(kWeightTensor);
  return early ? std::min(kEarlyStages, stages) : 0;
}

// Modelled time of a schedule in SM cycles; only its order means anything.
double modelled_cycles(const Sm90aKernel& kernel, const Sm90aProduct& product, const Sm90aSchedule& schedule,
                       int sm_count);

// Rows of a box of B: a part where neighbours bring one each, half a tile where the second half does not follow the
// first (second_half rows on), else the tile.
constexpr int b_box_rows(int block_n, int multicast, int second_half) {
  if (multicast > 1) return block_n / multicast;
  return second_half != block_n / 2 ? block_n / 2 : block_n;
}
constexpr int b_box_rows(int block_n, int multicast) {
  return b_box_rows(block_n, multicast, block_n / 2);
}

// What a measured table says of a shape: a schedule as its text has it.
struct MeasuredCut {
  int rows, columns, pingpong, multicast, splits;
  int multicast_a = 1;
};

// Of schedules as choices, which the tuner times and tests force:
// "rows=128,columns=192,pingpong=0,multicast=2,splits=1" of a schedule of `kernel`; ",multicast_a=2" behind it of one
// that shares A.
std::string schedule_text(const Sm90aKernel& kernel, const Sm90aSchedule& schedule);

// A kernel, and a product as each of its tiles cuts it: what a variant chooses by, and what tools/fit fits. sm_count
// >= 1.
struct Sm90aModel {
  Sm90aKernel kernel;
  std::function<Sm90aProduct(const Sm90aTile&)> product_for;

  // Every schedule that the kernel can run, tile by tile.
  void visit_schedules(int sm_count, const std::function<void(const Sm90aProduct&, const Sm90aSchedule&)>& visit) const;
  // The measured one, if there is one that the kernel can run; else that of least modelled time, the earlier of equals.
  Sm90aSchedule choose(int sm_count, const MeasuredCut* measured = nullptr) const;
  // All schedules, what choose() takes of nothing measured first and marked as the estimate.
  std::vector<Choice> choices(int sm_count) const;
  // The schedule of that text; none where it is not one of choices().
  std::optional<Sm90aSchedule> parse(std::string_view text, int sm_count) const;
};

}  // namespace noisefloor::product
