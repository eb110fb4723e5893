// Writing into the shared memory of other blocks of a cluster (distributed shared memory). PTX ISA, "st.async".
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

}  // namespace noisefloor::ptx
