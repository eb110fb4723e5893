// The special function unit's approximations, subnormals flushed to zero: one instruction each, where CUDA's own
// functions guard the range with several. PTX ISA, "rcp", "ex2", "tanh". sm_75 and newer.
#pragma once

namespace noisefloor::ptx {

// 1 / x within 1 ulp; 0 for infinity.
__device__ __forceinline__ float rcp_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 2^x within a relative error of 2^-22; 0 for -infinity.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(x) within a relative error of 2^-11.
__device__ __forceinline__ float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace noisefloor::ptx
