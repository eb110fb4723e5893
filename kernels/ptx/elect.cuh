// elect.sync: one thread of a warp, the same every time. PTX ISA, "Parallel Synchronization Instructions: elect.sync".
// sm_90.
#pragma once

#include <cstdint>

namespace noisefloor::ptx {

// True in one thread of a warp whose threads are all here. TMA takes uniform registers: only behind this does the
// compiler know that one thread issues it; behind `threadIdx.x == 0` it puts every load into a loop over the threads
// that may have come. To be tested in the branch itself, `if (warp == 4 && elect_one())`: the knowledge does not pass
// through a bool that is kept. Bulk groups belong to a thread, so who commits by this also waits by it.
__device__ __forceinline__ bool elect_one() {
  std::uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(elected));
  return elected != 0;
}

}  // namespace noisefloor::ptx
