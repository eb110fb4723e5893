// Writing into the shared memory of other blocks of a cluster (distributed shared memory), and the cluster's place in
// its grid. PTX ISA, "st.async", "Special Registers: %clusterid, %nclusterid". Addresses are
// shared::cluster ones (map_to_rank). sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// st.async: two floats to 8-byte aligned `address` in some block of the cluster; its 8 bytes complete on `barrier` of
// that block (mbarrier_arrive_expect_tx there; both are shared::cluster addresses), and whoever waits for that phase
// sees them. The target block must have started, and must not exit before that phase.
__device__ __forceinline__ void store_async(std::uint32_t address, float2 value, std::uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(address),
               "f"(value.x), "f"(value.y), "r"(barrier)
               : "memory");
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

}  // namespace noisefloor::ptx
