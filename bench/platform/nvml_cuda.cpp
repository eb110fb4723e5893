// NVML by CUDA device.
#include <cuda_runtime_api.h>

#include <array>

#include "bench/platform/nvml.h"

namespace noisefloor {

GpuMonitor GpuMonitor::of_cuda_device(int device) {
  std::array<char, 32> bus_id{};
  const cudaError_t error = cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), device);
  if (error != cudaSuccess) return unavailable(std::string("the device's PCI address: ") + cudaGetErrorString(error));
  return GpuMonitor(bus_id.data());
}

}  // namespace noisefloor
