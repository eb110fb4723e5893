// mbarrier: a barrier in shared memory that counts arrivals and, for TMA, bytes. PTX ISA, "Parallel Synchronization and
// Communication Instructions: mbarrier". Addresses are 32-bit shared-window addresses (shared_address). sm_90.
#pragma once

#include <cstdint>

#include "kernels/ptx/shared.cuh"

namespace noisefloor::ptx {

// mbarrier.init: phase 0, `count` arrivals complete a phase.
__device__ __forceinline__ void mbarrier_init(std::uint32_t barrier, std::uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// mbarrier.inval: `barrier` is plain memory again. No thread may still arrive at it or wait on it.
__device__ __forceinline__ void mbarrier_invalidate(std::uint32_t barrier) {
  asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// mbarrier.arrive, release semantics at block scope.
__device__ __forceinline__ void mbarrier_arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// mbarrier.arrive on a barrier of any block of the cluster; `barrier` is a shared::cluster address (map_to_rank).
// Relaxed: it orders no ordinary memory accesses (release at cluster scope costs a memory barrier), which is enough to
// hand back a stage that only wgmma has read and only TMA will write.
__device__ __forceinline__ void mbarrier_arrive_cluster_relaxed(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// mbarrier.arrive.expect_tx: one arrival, and `bytes` more to come from TMA before the phase can complete.
__device__ __forceinline__ void mbarrier_arrive_expect_tx(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// mbarrier.try_wait.parity in a loop: returns once the phase of parity `parity` has completed. The instruction suspends
// the thread for a while by itself, so the loop does not burn issue slots.
__device__ __forceinline__ void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// The same, with acquire semantics at cluster scope: what other blocks of the cluster stored by st.async is here.
__device__ __forceinline__ void mbarrier_wait_cluster(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again_%=:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again_%=;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// mbarrier.test_wait.parity: whether it has, without waiting.
__device__ __forceinline__ bool mbarrier_test(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

}  // namespace noisefloor::ptx
