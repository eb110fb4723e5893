// Programmatic dependent launch. PTX ISA, "griddepcontrol". sm_90. The wait is a no-op in a grid launched without it.
#pragma once

namespace noisefloor::ptx {

// Waits until the grids this one depends on have completed and their writes are visible.
__device__ __forceinline__ void griddepcontrol_wait() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Allows the grids that depend on this one to be scheduled; they still wait for its end in griddepcontrol.wait.
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace noisefloor::ptx
