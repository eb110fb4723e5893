// cp.async.bulk: contiguous copies between global and shared memory by the TMA unit, without a descriptor. Issued by
// one thread; sizes and both addresses are multiples of 16 bytes. PTX ISA, "cp.async.bulk". sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// Global to this block's shared memory; `bytes` complete on `barrier` (mbarrier_arrive_expect_tx).
__device__ __forceinline__ void bulk_load(std::uint32_t destination, const void* source, std::uint32_t bytes,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier)
      : "memory");
}

// Shared memory to global, in this thread's current bulk group. Generic writes to `source` need fence.proxy.async
// before it.
__device__ __forceinline__ void bulk_store(void* destination, std::uint32_t source, std::uint32_t bytes) {
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(destination)),
      "r"(source), "r"(bytes)
      : "memory");
}

// Closes the group of this thread's bulk stores since the last commit.
__device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until all but the newest `kPending` groups have read their shared memory, which may then be written again.
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

}  // namespace noisefloor::ptx
