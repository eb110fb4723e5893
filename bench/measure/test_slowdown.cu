#include <cuda_runtime.h>

#include "bench/measure/test_slowdown.h"

namespace noisefloor {
namespace {

__global__ void spin_kernel(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
}

}  // namespace

Status enqueue_spin(Stream stream, double nanoseconds) {
  spin_kernel<<<1, 1, 0, stream>>>(static_cast<long long>(nanoseconds));
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return {StatusCode::cuda_error, "the spin of the test slow-down", static_cast<int>(error)};
  return success();
}

}  // namespace noisefloor
