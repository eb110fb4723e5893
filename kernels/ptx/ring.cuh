// Where a thread is in a ring of stages that mbarriers hand over.
#pragma once

#include <cstdint>

#include "kernels/ptx/mbarrier.cuh"

namespace noisefloor::ptx {

// Barriers of `stages` stages from `full` and from `empty` on, 8 bytes each: filled by one arrival and its bytes, and
// emptied by `readers` arrivals.
__device__ __forceinline__ void init_ring(std::uint32_t full, std::uint32_t empty, int stages, std::uint32_t readers) {
  for (int stage = 0; stage < stages; ++stage) {
    mbarrier_init(full + 8 * stage, 1);
    mbarrier_init(empty + 8 * stage, readers);
  }
}

struct Ring {  // position in the stages, and the parity of the current round
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  __device__ __forceinline__ void skip(int count, int stages) {
    const int passed = stage + count;
    stage = passed % stages;
    parity ^= passed / stages & 1;
  }
};

}  // namespace noisefloor::ptx
