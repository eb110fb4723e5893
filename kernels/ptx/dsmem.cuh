// The shared memory of other blocks of a cluster (distributed shared memory). PTX ISA, "st.async", "ld".
// Addresses are shared::cluster ones (map_to_rank). sm_90.
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

// ld.shared::cluster of 16 and of 8 bytes, aligned to as many.
__device__ __forceinline__ float4 load_cluster_16(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ float2 load_cluster_pair(std::uint32_t address) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}

}  // namespace noisefloor::ptx
