// cp.async.bulk: copies of contiguous bytes by the copy engine. PTX ISA, "Data Movement and Conversion Instructions:
// cp.async.bulk". Issued by one thread. sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// Global to shared memory, its bytes counted by `barrier`. All but the barrier multiples of 16 bytes. No L2 cache
// policy: with evict_first, long streams were slower on an H200 (docs/log/sampler_step).
__device__ __forceinline__ void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
               : "memory");
}

__device__ __forceinline__ uint4 load_shared_16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}

}  // namespace noisefloor::ptx
