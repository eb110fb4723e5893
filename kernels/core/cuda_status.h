// Turning CUDA's error codes into a Status; the one header of core that includes the CUDA runtime from host code.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/core/status.h"

namespace noisefloor {

inline Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return success();
  const StatusCode code = error == cudaErrorMemoryAllocation ? StatusCode::out_of_memory : StatusCode::cuda_error;
  return {code, what, static_cast<int>(error)};
}

// Reads and clears the error of the launch just made. Does not synchronise.
inline Status launch_status(const char* kernel) {
  return cuda_status(cudaGetLastError(), kernel);
}

}  // namespace noisefloor

// Returns from the enclosing launcher with the call's text when the call fails.
#define NOISEFLOOR_CUDA(call)                                                                                         \
  do {                                                                                                                \
    if (const ::noisefloor::Status status_ = ::noisefloor::cuda_status((call), #call); !status_.ok()) return status_; \
  } while (false)
