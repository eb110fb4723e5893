// Blocks fed by the bulk copy engine, for kernels that stream (sm_90): a producer thread brings tiles into a ring of
// shared-memory stages, 256 consumer threads work on them. The loads in flight live in shared memory instead of
// registers, so that their number does not depend on occupancy, and a block lives for several tiles, so that its start
// is paid once for them. Not a persistent grid: SMs do not get equal shares of memory bandwidth, and blocks handed out
// as SMs come free even that out. What an op adds is a Work, which is the kernel's argument:
//
//   std::uint32_t tiles;
//   std::uint32_t stage_bytes;   multiple of 128
//   __device__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const;
//       by the producer: arrives at `barrier` with the tile's bytes (mbarrier_arrive_expect_tx), and starts the copies
//   __device__ void consume(std::uint32_t tile, const Wait& wait) const;
//       by each consumer, threadIdx.x below 256; wait() returns the stage's address once the tile is there
//
// Shared memory: stages of stage_bytes in 48 KiB, two at least, eight at most; three blocks an SM. By Little's law
// 4.25 TB/s over 1 us of latency ask for 32 KiB in flight per SM.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/core/device.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/stream.cuh"
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"

namespace noisefloor {

inline constexpr int kBulkConsumers = 256;
inline constexpr int kBulkThreads = kBulkConsumers + 32;
inline constexpr int kBulkBlocksPerSm = 3;  // 864 threads: 72 registers each
inline constexpr std::uint32_t kBulkMinStages = 2;
inline constexpr std::uint32_t kBulkMaxStages = 8;
inline constexpr std::uint32_t kBulkStageBudget = 48 * 1024;
// The largest stage of which two fit a block's shared memory (227 KiB) with room to spare.
inline constexpr std::uint32_t kBulkMaxStageBytes = 96 * 1024;
inline constexpr std::uint32_t kBulkMaxTilesPerBlock = 8;

// A Work whose consumers keep something from tile to tile has `__device__ Thread begin(std::uint32_t first_tile)
// const`, whose value consume() gets as a third argument, and may have `__device__ void end(Thread&) const`; one whose
// stages have another budget kStageBudget.
template <class Work>
__global__ void __launch_bounds__(kBulkThreads, kBulkBlocksPerSm)
    bulk_kernel(const __grid_constant__ Work work, std::uint32_t tiles_per_block, int stages) {
  extern __shared__ __align__(1024) unsigned char storage[];
  __shared__ std::uint64_t barriers[2 * kBulkMaxStages];
  const std::uint32_t base = ptx::shared_address(storage);
  const std::uint32_t full = ptx::shared_address(barriers);
  const std::uint32_t empty = full + 8 * kBulkMaxStages;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < stages; ++stage) {
      ptx::mbarrier_init(full + 8 * stage, 1);
      ptx::mbarrier_init(empty + 8 * stage, kBulkConsumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();  // what the kernel before this one wrote

  const std::uint32_t first = blockIdx.x * tiles_per_block;
  const std::uint32_t last = min(work.tiles, first + tiles_per_block);
  ptx::Ring ring;
  if (threadIdx.x >= kBulkConsumers) {
    if (!ptx::elect_one()) return;
    for (std::uint32_t tile = first; tile < last; ++tile, ring.advance(stages)) {
      ptx::mbarrier_wait(empty + 8 * ring.stage, ring.parity ^ 1);  // free at first
      work.fetch(tile, base + ring.stage * work.stage_bytes, full + 8 * ring.stage);
    }
    return;
  }
  const auto consume = [&](auto&&... kept) {
    for (std::uint32_t tile = first; tile < last; ++tile, ring.advance(stages)) {
      const auto wait = [&] {
        ptx::mbarrier_wait(full + 8 * ring.stage, ring.parity);
        return base + ring.stage * work.stage_bytes;
      };
      work.consume(tile, wait, kept...);
      ptx::mbarrier_arrive(empty + 8 * ring.stage);
    }
  };
  if constexpr (requires { work.begin(first); }) {
    auto kept = work.begin(first);
    consume(kept);
    if constexpr (requires { work.end(kept); }) work.end(kept);
  } else {
    consume();
  }
}

template <class Work>
consteval std::uint32_t bulk_stage_budget() {
  if constexpr (requires { Work::kStageBudget; }) return Work::kStageBudget;
  return kBulkStageBudget;
}

template <class Work>
Status launch_bulk(const Work& work, const LaunchContext& context, std::uint32_t tiles_per_block) {
  const std::uint32_t stages = std::clamp(bulk_stage_budget<Work>() / work.stage_bytes, kBulkMinStages, kBulkMaxStages);
  const LaunchShape shape{.grid = (work.tiles + tiles_per_block - 1) / tiles_per_block,
                          .block = kBulkThreads,
                          .shared_bytes = stages * work.stage_bytes,
                          .shared_limit = kBulkMinStages * kBulkMaxStageBytes,
                          .programmatic = context.programmatic_launch};
  return launch_kernel("bulk_kernel", bulk_kernel<Work>, shape, context.stream, work, tiles_per_block,
                       static_cast<int>(stages));
}

template <class Work>
Status launch_bulk(const Work& work, const LaunchContext& context) {
  const std::uint32_t resident = kBulkBlocksPerSm * static_cast<std::uint32_t>(context.device->sm_count);
  return launch_bulk(work, context, std::min((work.tiles + resident - 1) / resident, kBulkMaxTilesPerBlock));
}

// A Map (stream.cuh) over FlatInputs: tiles of 512 vectors of each input, or of 256.
template <class Map>
struct FlatWork {
  static constexpr std::uint32_t kTileVectors = Map::kInputs > 3 ? 256 : 512;
  static constexpr std::uint32_t kTileBytes = kTileVectors * 16;
  Map map;
  std::uint32_t tiles;
  std::uint32_t stage_bytes = Map::kInputs * kTileBytes;

  explicit FlatWork(const Map& the_map) : map(the_map), tiles((map.vectors + kTileVectors - 1) / kTileVectors) {}

  __device__ __forceinline__ void fetch(std::uint32_t tile, std::uint32_t stage, std::uint32_t barrier) const {
    const std::uint32_t first = tile * kTileVectors;
    const std::uint32_t bytes = min(kTileVectors, map.vectors - first) * 16;
    ptx::mbarrier_arrive_expect_tx(barrier, bytes * Map::kInputs);
#pragma unroll
    for (int input = 0; input < Map::kInputs; ++input)
      ptx::bulk_load(stage + input * kTileBytes, map.at(input, first), bytes, barrier);
  }
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait) const {
    each(tile, wait, [&](std::uint32_t vector, const auto& bits) { map.apply(vector, bits); });
  }
  // Calls body(vector, bits) for the thread's vectors.
  template <class Wait, class Body>
  __device__ __forceinline__ void each(std::uint32_t tile, const Wait& wait, const Body& body) const {
    const std::uint32_t stage = wait();
#pragma unroll
    for (std::uint32_t i = threadIdx.x; i < kTileVectors; i += kBulkConsumers) {
      const std::uint32_t vector = tile * kTileVectors + i;
      if (vector >= map.vectors) return;
      uint4 bits[Map::kInputs];
#pragma unroll
      for (int input = 0; input < Map::kInputs; ++input)
        bits[input] = ptx::load_shared_16(stage + input * kTileBytes + i * 16);
      body(vector, bits);
    }
  }
};

}  // namespace noisefloor
