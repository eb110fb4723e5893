// Programmatic dependent launch. PTX ISA, "griddepcontrol". The wait is a no-op in a grid launched without it; before
// sm_90, where no launch starts early, both are nothing.
#pragma once

namespace noisefloor::ptx {

// Waits until the grids this one depends on have completed and their writes are visible.
__device__ __forceinline__ void griddepcontrol_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the grids that depend on this one to be scheduled; they still wait for its end in griddepcontrol.wait.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace noisefloor::ptx
