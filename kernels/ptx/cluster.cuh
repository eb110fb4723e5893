// Thread block clusters: special registers, and shared memory of the other blocks. PTX ISA, "Special Registers:
// %cluster_ctarank, %cluster_nctarank" and "mapa". sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

__device__ __forceinline__ std::uint32_t cluster_rank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// mapa: the shared::cluster address of what block `rank` of the cluster has at `address` of its shared memory.
__device__ __forceinline__ std::uint32_t map_to_rank(std::uint32_t address, std::uint32_t rank) {
  std::uint32_t mapped;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}

// ld.shared::cluster: 16 bytes at a shared::cluster address.
__device__ __forceinline__ float4 load_cluster(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}

}  // namespace noisefloor::ptx
