// cp.async.bulk: copies of contiguous bytes by the copy engine. PTX ISA, "Data Movement and Conversion Instructions:
// cp.async.bulk". Issued by one thread. sm_90.
#pragma once

#include <cstdint>

#include "kernels/ptx/shared.cuh"

namespace noisefloor::ptx {

// Global to shared memory, its bytes counted by `barrier`. All but the barrier multiples of 16 bytes. No L2 cache
// policy: with evict_first, long streams were slower on an H200 (docs/experiments/sampler_step).
__device__ __forceinline__ void bulk_load(std::uint32_t to, const void* from, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace noisefloor::ptx
