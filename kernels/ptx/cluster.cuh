// Thread block clusters: special registers, and shared memory of the other blocks. PTX ISA, "Special Registers:
// %cluster_ctarank, %clusterid, %nclusterid" and "mapa". sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
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

// mapa: the shared::cluster address of what block `rank` of the cluster has at `address` of its shared memory.
__device__ __forceinline__ std::uint32_t map_to_rank(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

}  // namespace noisefloor::ptx
