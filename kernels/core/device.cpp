#include "kernels/core/device.h"

#include "kernels/core/status.h"
#include "kernels/core/variant.h"

namespace noisefloor {

const char* to_string(Arch arch) {
  constexpr const char* kNames[] = {"host", "any", "sm_75+", "sm_80+", "sm_90a"};
  return kNames[static_cast<std::size_t>(arch)];
}

const char* to_string(Kind kind) {
  constexpr const char* kNames[] = {"host", "naive", "tiled", "tensor_core", "ptx", "baseline"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool runs_on(Arch arch, int compute_capability) {
  switch (arch) {
    case Arch::host:
      return compute_capability == 0;
    case Arch::any_gpu:
    case Arch::sm75:
      return compute_capability >= 75;
    case Arch::sm80:
      return compute_capability >= 80;
    case Arch::sm90a:
      return compute_capability == 90;
  }
  return false;
}

const char* to_string(StatusCode code) {
  constexpr const char* kNames[] = {"ok",        "invalid_argument", "unsupported_problem", "unsupported_arch",
                                    "not_built", "out_of_memory",    "cuda_error"};
  return kNames[static_cast<std::size_t>(code)];
}

}  // namespace noisefloor
