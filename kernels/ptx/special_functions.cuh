// The special function unit's approximations, subnormals flushed to zero: one instruction each, where CUDA's __expf and
// __fdividef guard the range with several. PTX ISA, "ex2", "rcp". sm_75 and newer.
#pragma once

namespace noisefloor::ptx {

// 2^x within 2 ulp; infinity from x = 128 on, 0 below -126.
__device__ __forceinline__ float ex2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / x within 1 ulp; 0 for infinity.
__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace noisefloor::ptx
