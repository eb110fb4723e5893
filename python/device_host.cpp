// A build without CUDA.
#include <stdexcept>

#include "python/call.h"

namespace noisefloor::python {

const DeviceInfo& gpu_info(int) {
  throw std::runtime_error("this build of noisefloor has no CUDA: only tensors on the CPU can be given");
}
std::string gpu_name(int) {
  return "";
}

CurrentGpu::CurrentGpu(int) {}
CurrentGpu::~CurrentGpu() = default;

bool is_current(const Device&) {
  return false;
}
bool captures(const Device&, Stream) {
  return false;
}
void wait_for(const Device&, Stream) {}

std::string cuda_error_text(int error) {
  return "CUDA error " + std::to_string(error);
}

}  // namespace noisefloor::python
