#include "bench/platform/cuda_check.h"

#include <fmt/format.h>

#include "bench/platform/platform.h"

namespace noisefloor {
namespace {

// After one of these every later call of the process fails too.
bool context_is_lost(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string cuda_error_text(int error) {
  const auto code = static_cast<cudaError_t>(error);
  return fmt::format("{} ({})", cudaGetErrorString(code), cudaGetErrorName(code));
}

void check_cuda(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(fmt::format("{}: out of device memory", call));
  throw DeviceError(fmt::format("{}: {}", call, cuda_error_text(error)), context_is_lost(error));
}

}  // namespace noisefloor
