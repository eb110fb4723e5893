// What the ptx_sm90a kernels of products share: who a thread is, the ring of k-steps between the producer and the
// consumers, and the exchange of partial sums in a cluster. Device code only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/device/divider.h"
#include "kernels/product/sharing.h"
#include "kernels/product/sm90a_schedule.h"
#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace noisefloor::product {

inline constexpr int kSwizzleAtom = 1024;  // 8 rows of 128 bytes: the alignment of a swizzled tile

// Which operands come from matrices whose rows are k: in boxes of 64 columns, or of 32 where 64 do not divide B's tile,
// in whose rows of 128 or 64 bytes columns lie side by side. Else a row of 128 bytes is 64 of k.
struct Majors {
  bool a = false, b = false;
  int b_columns = 64;

  constexpr int a_box() const { return a ? 64 : 0; }  // columns of a box; 0: there are none
  constexpr int b_box() const { return b ? b_columns : 0; }
};
constexpr int box_bytes(int columns) {
  return kBlockK * columns * 2;
}

// What a block takes by its tile's shape. Its stages are of rows of A and rows of B.
template <Sm90aTile kTile>
struct Sm90aBlock {
  static constexpr Sm90aTile kShape = kTile;
  static constexpr int kABytes = kShape.block_m() * kRowBytes;
  static constexpr int kStageBytes = kABytes + kShape.block_n * kRowBytes;
  static_assert(kShape.block_n / 2 % 8 == 0, "each half of B must be whole swizzle atoms");
  static constexpr int kSubtiles = kShape.pingpong ? 2 : 1;  // of 64 rows, that a consumer holds
  // Accumulators of 128 registers need more than the 168 per thread that 9 warps can have: there the producer is a
  // whole warpgroup, which gives registers to the consumers (setmaxnreg).
  static constexpr bool kMoveRegisters = kShape.consumers == 2 && (kShape.block_n > 192 || kShape.pingpong);
  static constexpr int kProducerRegisters = 40, kConsumerRegisters = 232;
  static_assert(128 * kProducerRegisters + 256 * kConsumerRegisters <= 65536, "an SM's registers");
  static constexpr int kThreads = kShape.consumers * 128 + (kMoveRegisters ? 128 : 32);
  // Of so many bytes of shared memory with kShape.stages stages, and with deep_stages.
  static constexpr bool fits(int bytes, int deep_bytes) {
    constexpr int kReservedBytes = 1024, kSmBytes = 228 * 1024;  // of the system, per block; in all
    return (bytes + kReservedBytes) * kShape.blocks_per_sm <= kSmBytes && deep_bytes + kReservedBytes <= kSmBytes;
  }
};

// The same number, which a warp's threads share, so that the compiler sees that they do: what follows from it is worked
// out once for the warp, and wgmma takes its descriptors from there.
__device__ __forceinline__ int uniform(int shared) {
  return __shfl_sync(0xffffffffu, shared, 0);
}

// What a thread does. Warps of the consumers come first, which set up the barriers; then the producer's. Of its first,
// one thread prefetches the maps; the warp (tma_warp) walks the steps, and an elected thread of it issues the loads.
template <int kConsumers>
struct ThreadRole {
  int warp, lane, consumer;
  bool producer, tma_warp, first_of_producer;

  __device__ __forceinline__ ThreadRole()
      : warp(uniform(static_cast<int>(threadIdx.x) / 32)),
        lane(static_cast<int>(threadIdx.x) % 32),
        consumer(warp / 4),
        producer(warp >= kConsumers * 4),
        tma_warp(warp == kConsumers * 4),
        first_of_producer(threadIdx.x == kConsumers * 128) {}
};

// That, and where its block is.
template <int kConsumers>
struct WarpRole : ThreadRole<kConsumers>, Sharing {
  int splits;

  __device__ __forceinline__ WarpRole(int blocks_of_multicast, int blocks_of_split, int blocks_of_multicast_a = 1)
      : Sharing(blocks_of_multicast, blocks_of_multicast_a,
                blocks_of_multicast * blocks_of_multicast_a * blocks_of_split > 1
                    ? static_cast<int>(ptx::cluster_rank())
                    : 0),
        splits(blocks_of_split) {}

  // A cluster takes every tile_stride()-th tile from first_tile() on.
  __device__ __forceinline__ int first_tile() const { return static_cast<int>(ptx::cluster_index()); }
  __device__ __forceinline__ int tile_stride() const { return static_cast<int>(ptx::cluster_count()); }
};

// The k-steps [first, first + count) of a split.
struct StepRange {
  int first, count;

  __device__ __forceinline__ StepRange(int k_steps, int split, const Divider& splits)
      : first(k_steps * split / splits), count(k_steps * (split + 1) / splits - first) {}
};

// The mbarriers in shared memory: of each stage, that it is full and that it is empty; and that the other blocks'
// partial sums have been received.
struct Barriers {
  std::uint32_t full, empty, received;

  static constexpr int bytes(int stages) { return (2 * stages + 1) * 8; }
  __device__ __forceinline__ Barriers(std::uint32_t first, int stages)
      : full(first), empty(full + stages * 8), received(empty + stages * 8) {}

  // By one thread of each of the consumers' warps, which share the stages: one thread would make them in turn, and the
  // producer finds its first tile meanwhile. (A warp's threads would take turns: the instruction takes uniform
  // registers.) kReaders: consumers that read a stage. `expected` bytes will be received where tiles are split.
  template <int kReaders, int kConsumers>
  __device__ __forceinline__ void init(const WarpRole<kConsumers>& role, int stages, int expected) const {
    if (!ptx::elect_one()) return;
#pragma unroll 1
    for (int stage = role.warp; stage < stages; stage += kConsumers * 4) {
      ptx::mbarrier_init(full + stage * 8, 1);
      ptx::mbarrier_init(empty + stage * 8, static_cast<std::uint32_t>(kReaders * 4 * role.givers()));
    }
    if (role.warp == 0) ptx::mbarrier_init(received, 1);
    ptx::fence_mbarrier_init();
    if (role.warp == 0 && role.splits > 1)
      ptx::mbarrier_arrive_expect_tx(received, static_cast<std::uint32_t>(expected));
  }

  // A stage's consumer is done with it: one arrival per warp, in each block that may write the stage.
  template <int kConsumers>
  __device__ __forceinline__ void release(const WarpRole<kConsumers>& role, int stage) const {
    if (role.sharing > 1) {
      if (role.lane < role.givers())
        ptx::mbarrier_arrive_cluster_relaxed(
            ptx::map_to_rank(empty + stage * 8, static_cast<std::uint32_t>(role.giver(role.lane))));
    } else if (role.lane == 0) {
      ptx::mbarrier_arrive(empty + stage * 8);
    }
  }
};

// Keeps the compiler from working these out later than here.
template <class... Int>
__device__ __forceinline__ void pin(Int&... numbers) {
  (([&] { asm volatile("" : "+r"(numbers)); }()), ...);
}

// All threads: the barriers are ready in every block that arrives on them.
template <int kConsumers>
__device__ __forceinline__ void meet(const WarpRole<kConsumers>& role) {
  __syncwarp();
  if (role.sharing > 1)
    ptx::cluster_meet();  // fence_mbarrier_init has released the barriers to the cluster
  else
    __syncthreads();
}

// What the launches before wrote is here. For each thread that reads or writes global memory, before it first does; its
// tile's place it works out ahead of this, while those launches end.
__device__ __forceinline__ void wait_for_launches() {
  ptx::griddepcontrol_wait();
}

// The warp that loads A and B, behind its last load: blocks of the next launch may start. Not sooner, when some SMs
// have run out of tiles and others have not: small blocks would crowd on the first (docs/experiments/networks, "starts
// that crowd").
__device__ __forceinline__ void let_next_launch_start() {
  ptx::griddepcontrol_launch_dependents();
}

// A split tile's blocks exchange partial sums: each has a buffer in DSMEM (DsmemBuffer) for its share of them, the
// splits' one behind the other. A consumer's warp says that no step reads its block's any more, from run_steps() or
// await_dsmem().
__device__ __forceinline__ void open_dsmem() {
  __syncwarp();
  ptx::cluster_arrive_relaxed();
}
// Behind the products: all blocks' buffers are open. What is sent there is counted by its `received`; a block's own
// share goes to its DSMEM buffer as plain stores, for which the caller needs a barrier.
__device__ __forceinline__ void await_dsmem(int opens, int steps) {
  if (opens >= steps) open_dsmem();
  __syncwarp();
  ptx::cluster_wait();
}
__device__ __forceinline__ void await_sums(const Barriers& barriers) {
  __syncwarp();
  ptx::mbarrier_wait_cluster(barriers.received, 0);
}

// In ping-pong, consumers multiply in turns: a parity tells a stage's phase only from the one before, so the other
// consumer must have seen all of its own.
inline constexpr int kOrderBarrier = 3;  // and the next
__device__ __forceinline__ void await_order(int consumer) {
  ptx::named_barrier_sync(static_cast<std::uint32_t>(kOrderBarrier + consumer), 2 * 128);
}
__device__ __forceinline__ void pass_order(int consumer) {
  ptx::named_barrier_arrive(static_cast<std::uint32_t>(kOrderBarrier + 1 - consumer), 2 * 128);
}

template <int kSubtiles, int kCount>
__device__ __forceinline__ void finish_products(float (&acc)[kSubtiles][kCount]) {
  ptx::wgmma_wait<0>();
#pragma unroll
  for (auto& subtile : acc)
#pragma unroll
    for (float& x : subtile) ptx::wgmma_pin(x);
}

// A block stays while others may send it partial sums or arrive on its barriers. Sums it awaits. Arrivals are relaxed,
// so a neighbour's may still be under way when it has met the others, and one that finds no block fails the launch
// (docs/experiments/convolution/2026-11-26-arrivals-on-a-block-that-left.md): who loads waits for every stage that it
// filled to come back.

// The warp that loads, behind its last load: `ring` stands behind the last stage that it filled. A split tile's
// stages are awaited by leave_producer, so that the exchange of sums need not wait for them.
template <int kConsumers>
__device__ __forceinline__ void await_stages(const WarpRole<kConsumers>& role, const Barriers& barriers, ptx::Ring ring,
                                             int stages) {
  if (role.sharing == 1 || role.splits > 1) return;
#pragma unroll 1
  for (int i = 0; i < stages; ++i, ring.advance(stages))
    ptx::mbarrier_wait(barriers.empty + ring.stage * 8, ring.parity ^ 1);
}

// The producer's warps of a split tile: the split's `steps` filled the stages, one lane awaits each.
template <int kConsumers>
__device__ __forceinline__ void leave_producer(const WarpRole<kConsumers>& role, const Barriers& barriers, int stages,
                                               int steps) {
  __syncwarp();
  if (role.splits == 1) return;
  ptx::cluster_meet();  // as the consumers do for their DSMEM buffers
  if (role.sharing > 1) {
    int lane;  // role.lane would take a register all the way here
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    const int behind_first = steps - 1 - lane;  // fillings from the lane's stage's first on
    if (lane < stages && behind_first >= 0)
      ptx::mbarrier_wait(barriers.empty + lane * 8, static_cast<std::uint32_t>(behind_first / stages & 1));
  }
}

}  // namespace noisefloor::product
