// prefetch: brings the cache line at a global address into L2 without waiting for it. PTX ISA, "prefetch". sm_75 and
// newer.
#pragma once

namespace noisefloor::ptx {

__device__ __forceinline__ void prefetch_l2(const void* pointer) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(pointer)));
}

}  // namespace noisefloor::ptx
