// cp.async: copies from global to shared memory that bypass registers and complete in groups; sm_80 and newer.
// PTX ISA, "Data movement and conversion instructions: cp.async".
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// 16 bytes, cached in L2 only, the 128 bytes around them fetched to L2; both addresses 16-byte aligned. Where `valid`
// is false, zeros are written and nothing is read.
__device__ __forceinline__ void cp_async_16(std::uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
               "l"(__cvta_generic_to_global(global)), "r"(valid ? 16 : 0)
               : "memory");
}

// The same without a prefetch of the 128 bytes around: for rows that end within them.
__device__ __forceinline__ void cp_async_16_alone(std::uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(__cvta_generic_to_global(global))
               : "memory");
}

// 16 bytes, cached in L1 too: for what the block reads several times. Zeros where `valid` is false.
__device__ __forceinline__ void cp_async_16_again(std::uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(__cvta_generic_to_global(global)),
               "r"(valid ? 16 : 0)
               : "memory");
}

// Closes the group of this thread's copies since the last commit.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `kPending` of this thread's groups are in flight. Other threads' copies need a barrier besides.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace noisefloor::ptx
