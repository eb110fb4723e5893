// CUDA devices, by the runtime. Nothing here runs before a tensor on a GPU is given.
#include <cuda_runtime_api.h>

#include <map>
#include <mutex>
#include <stdexcept>

#include "python/call.h"

namespace noisefloor::python {
namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // else the next launch would report it
  throw std::runtime_error(std::string(call) + ": " + cuda_error_text(error));
}

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, name, device), "cudaDeviceGetAttribute");
  return value;
}

}  // namespace

const DeviceInfo& gpu_info(int index) {
  static std::mutex mutex;
  static std::map<int, DeviceInfo> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(index); found != known.end()) return found->second;
  DeviceInfo info;
  info.compute_capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor, index) + attribute(cudaDevAttrComputeCapabilityMinor, index);
  info.sm_count = attribute(cudaDevAttrMultiProcessorCount, index);
  info.l2_bytes = static_cast<std::size_t>(attribute(cudaDevAttrL2CacheSize, index));
  info.shared_bytes_per_block = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  return known[index] = info;
}

std::string gpu_name(int index) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return properties.name;
}

CurrentGpu::CurrentGpu(int index) {
  check(cudaGetDevice(&before_), "cudaGetDevice");
  if (before_ == index) return;
  check(cudaSetDevice(index), "cudaSetDevice");
  changed_ = true;
}
CurrentGpu::~CurrentGpu() {
  if (changed_) (void)cudaSetDevice(before_);
}

bool is_current(const Device& device) {
  int current = 0;
  check(cudaGetDevice(&current), "cudaGetDevice");
  return device.gpu && device.index == current;
}

bool captures(const Device& device, Stream stream) {
  const CurrentGpu current(device.index);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void wait_for(const Device& device, Stream stream) {
  const CurrentGpu current(device.index);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

std::string cuda_error_text(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return std::string(cudaGetErrorString(code)) + " (" + cudaGetErrorName(code) + ")";
}

}  // namespace noisefloor::python
