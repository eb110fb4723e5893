// Writing into the shared memory of other blocks of a cluster (distributed shared memory), and the cluster's place in
// its grid. PTX ISA, "st", "barrier.cluster", "Special Registers: %clusterid, %nclusterid". Addresses are
// shared::cluster ones (map_to_rank). sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// st.shared::cluster: two floats, 8-byte aligned. Ordered by a cluster barrier with release and acquire. The target
// block must have started (a cluster barrier before the first store) and must not exit before the store is done.
__device__ __forceinline__ void store_cluster(std::uint32_t address, float2 value) {
  asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(value.x), "f"(value.y) : "memory");
}

// Which cluster of a one-dimensional grid this is, and of how many; without a cluster launch, the block and the grid.
__device__ __forceinline__ std::uint32_t cluster_index() {
  std::uint32_t index;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
__device__ __forceinline__ std::uint32_t cluster_count() {
  std::uint32_t count;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(count));
  return count;
}

// barrier.cluster.arrive with release: what this thread stored before, in any block, is visible after cluster_wait
// (fence.cuh).
__device__ __forceinline__ void cluster_arrive_release() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

}  // namespace noisefloor::ptx
