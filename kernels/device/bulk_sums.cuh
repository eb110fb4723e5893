// Sums over streams (ordered_sums.cuh) by blocks that the bulk copy engine feeds (bulk_pipeline.cuh); sm_90.
#pragma once

#include "kernels/device/bulk_pipeline.cuh"
#include "kernels/device/ordered_sums.cuh"
#include "kernels/ptx/fence.cuh"

namespace noisefloor {
namespace {  // each file that includes this is compiled for architectures of its own

// FlatWork of a Map of ordered_sums.cuh: a block leaves its sum.
template <class Map>
struct SumWork : FlatWork<Map> {
  float* block_sums;

  SumWork(const Map& map, float* sums) : FlatWork<Map>(map), block_sums(sums) {}
  __device__ __forceinline__ LaneSums<Map::kTerms> begin(std::uint32_t) const { return {}; }
  template <class Wait>
  __device__ __forceinline__ void consume(std::uint32_t tile, const Wait& wait, LaneSums<Map::kTerms>& sums) const {
    this->each(tile, wait, [&](std::uint32_t vector, const auto& bits) {
      float terms[Map::kTerms];
      this->map.apply(vector, bits, terms);
      sums.add(terms);
    });
  }
  __device__ __forceinline__ void end(const LaneSums<Map::kTerms>& sums) const {
    __shared__ float shared[kBulkConsumers / 32];
    float sum = lane_sum(sums.total());
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    ptx::named_barrier_sync(1, kBulkConsumers);
    if (threadIdx.x != 0) return;
#pragma unroll
    for (int warp = 1; warp < kBulkConsumers / 32; ++warp) sum += shared[warp];
    block_sums[blockIdx.x] = sum;
  }
};

// Both launches, with at most `blocks` sums in the workspace.
template <class Map, class Finish>
Status launch_bulk_sums(const char* name, const Map& map, std::int64_t blocks, const Finish& finish,
                        const Scratch& scratch, const LaunchContext& context) {
  const SumWork<Map> work(map, static_cast<float*>(scratch.workspace));
  const auto most = static_cast<std::uint32_t>(blocks);
  const std::uint32_t tiles_per_block = (work.tiles + most - 1) / most;
  const Status status = launch_bulk(work, context, tiles_per_block);
  return status.ok()
             ? launch_finish(name, scratch, (work.tiles + tiles_per_block - 1) / tiles_per_block, finish, context)
             : status;
}

}  // namespace
}  // namespace noisefloor
