// A build without CUDA: what the CUDA platform says instead.
#include <fmt/format.h>

#include "bench/platform/platform.h"

namespace noisefloor {

std::string cuda_error_text(int error) {
  return fmt::format("CUDA error {}", error);
}

std::unique_ptr<Platform> make_cuda_platform(int) {
  throw DeviceError("this build has no CUDA; build the preset `cuda`, or use --device host", false);
}

int cuda_device_count(std::string& why) {
  why = "this build has no CUDA";
  return 0;
}

std::vector<CudaDevice> list_cuda_devices(std::string& why) {
  (void)cuda_device_count(why);
  return {};
}

}  // namespace noisefloor
