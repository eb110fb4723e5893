// How kernels are launched, also those that ask for more than a grid and a block: shared memory beyond 48 KiB, a
// cluster, a cooperative grid, programmatic dependent launch. Host code of .cu files.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <tuple>
#include <utility>

#include "kernels/core/cuda_status.h"
#include "kernels/core/device.h"

namespace noisefloor {

struct LaunchShape {
  dim3 grid = 1;
  dim3 block = 1;
  std::size_t shared_bytes = 0;
  std::size_t shared_limit = 0;  // the most that any launch of the kernel asks for; may be 0 up to 48 KiB
  unsigned cluster = 0;          // blocks along x; 0: launched without clusters
  bool programmatic = false;     // may start before the kernel ahead of it has ended
  bool cooperative = false;      // all blocks run at once, or the launch fails
};

// Runs `kernel` with `arguments` on `stream`. An error is returned under `name`, and not left for the next launch to
// find. Padding in the arguments is zeroed: a launch of the same values passes the same bytes, by which it is known
// again.
template <class... Parameters, class... Arguments>
Status launch_kernel(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape, Stream stream,
                     Arguments&&... arguments) {
  constexpr unsigned kPortableCluster = 8;
  cudaError_t error = cudaSuccess;
  if (shape.shared_limit > 0)
    error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_limit));
  if (error == cudaSuccess && shape.cluster > kPortableCluster)
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);

  cudaLaunchAttribute attributes[3]{};
  unsigned count = 0;
  if (shape.cluster > 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster, 1, 1};
  }
  if (shape.programmatic) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cooperative) {
    attributes[count].id = cudaLaunchAttributeCooperative;
    attributes[count++].val.cooperative = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
  std::apply(
      [&](auto&... value) {
        (__builtin_clear_padding(&value), ...);
        void* pointers[] = {&value..., nullptr};
        if (error == cudaSuccess) error = cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), pointers);
      },
      values);
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return cuda_status(error, name);
}

}  // namespace noisefloor
