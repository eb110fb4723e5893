// NVML by CUDA device in a build without CUDA.
#include "bench/platform/nvml.h"

namespace noisefloor {

GpuMonitor GpuMonitor::of_cuda_device(int) {
  return unavailable("no CUDA in this build");
}

}  // namespace noisefloor
