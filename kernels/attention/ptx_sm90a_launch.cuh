// How the ptx_sm90a kernels of attention and temporal_attention are launched. Host code of .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/core/cuda_status.h"
#include "kernels/core/device.h"

namespace noisefloor::attention {

// One dimension of blocks; with programmatic stream serialization where the context asks for it.
template <class Kernel, class... Parameters>
Status launch_programmatic(Kernel kernel, std::int64_t blocks, int threads, int shared_bytes,
                           const LaunchContext& context, const char* name, const Parameters&... parameters) {
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = context.stream;
  config.attrs = &attribute;
  config.numAttrs = context.programmatic_launch ? 1 : 0;
  return cuda_status(cudaLaunchKernelEx(&config, kernel, parameters...), name);
}

}  // namespace noisefloor::attention
