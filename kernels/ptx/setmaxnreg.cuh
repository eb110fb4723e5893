// setmaxnreg: a warpgroup gives registers back to the block's pool or takes them from it. PTX ISA, "setmaxnreg". All
// warps of the warpgroup execute it; the kernel needs __launch_bounds__(threads, 1). sm_90a.
#pragma once

namespace noisefloor::ptx {

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "the instruction's range");
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "the instruction's range");
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace noisefloor::ptx
