// Where a thread is in a ring of stages that mbarriers hand over.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

struct Ring {  // position in the stages, and the parity of the current round
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  // Over stages that are somebody else's.
  __device__ __forceinline__ void skip(int count, int stages) {
    const int passed = stage + count;
    stage = passed % stages;
    parity ^= passed / stages & 1;
  }
};

}  // namespace noisefloor::ptx
