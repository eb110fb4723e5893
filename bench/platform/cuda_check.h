// Calls of the CUDA runtime that must succeed.
#pragma once

#include <cuda_runtime_api.h>

namespace noisefloor {

// Throws OutOfMemory, or DeviceError (lost where the context is), with the call's text and CUDA's; clears the error.
void check_cuda(cudaError_t error, const char* call);

}  // namespace noisefloor

#define CUDA_CHECK(call) ::noisefloor::check_cuda((call), #call)
