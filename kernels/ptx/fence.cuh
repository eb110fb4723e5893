// Fences between the generic proxy (ordinary loads and stores) and the async proxy (TMA, wgmma), and the cluster
// barrier. PTX ISA, "membar / fence" and "barrier.cluster". sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// fence.mbarrier_init: makes mbarrier.init visible to the other blocks of the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// fence.proxy.async: this thread's earlier accesses to shared memory are ordered before later TMA and wgmma accesses.
__device__ __forceinline__ void fence_proxy_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// barrier.cluster.arrive and .wait: all threads of all blocks of the cluster. The arrival is relaxed: it orders
// execution, not memory (a release costs a memory barrier of the whole GPU); data goes between blocks by the async
// proxy or st.async, and mbarriers.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}
// The same with release and acquire: what threads wrote to shared memory before it, all of the cluster see behind it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_meet() {
  cluster_arrive_relaxed();
  cluster_wait();
}

// bar.sync on hardware barrier `id` (1 to 15; 0 is __syncthreads) for `threads` threads of the block. PTX ISA,
// "barrier".
__device__ __forceinline__ void named_barrier_sync(std::uint32_t id, std::uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// bar.arrive: counts this warp on barrier `id` without waiting; others wait for it in named_barrier_sync.
__device__ __forceinline__ void named_barrier_arrive(std::uint32_t id, std::uint32_t threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace noisefloor::ptx
