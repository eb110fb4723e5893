// cp.async.bulk: copies of contiguous bytes by the copy engine. PTX ISA, "Data Movement and Conversion Instructions:
// cp.async.bulk". Issued by one thread. sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// Global to shared memory, its bytes counted by `barrier`; `policy` is an L2 cache policy. All but the barrier
// multiples of 16 bytes.
__device__ __forceinline__ void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

// Shared to global memory, in the thread's bulk group (tma_store_commit, tma_store_wait_read).
__device__ __forceinline__ void bulk_store(void* to, std::uint32_t from, std::uint32_t bytes, std::uint64_t policy) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
                   __cvta_generic_to_global(to)),
               "r"(from), "r"(bytes), "l"(policy)
               : "memory");
}

// evict_first: for bytes that are read or written once.
__device__ __forceinline__ std::uint64_t streaming_policy() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint4 load_shared_16(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}

}  // namespace noisefloor::ptx
