#include "kernels/core/device.h"

#include "kernels/core/status.h"

namespace noisefloor {

const char* to_string(Arch arch) {
  switch (arch) {
    case Arch::host:
      return "host";
    case Arch::any_gpu:
      return "any";
    case Arch::sm75:
      return "sm_75+";
    case Arch::sm80:
      return "sm_80+";
    case Arch::sm90a:
      return "sm_90a";
  }
  return "?";
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
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::invalid_argument:
      return "invalid_argument";
    case StatusCode::unsupported_problem:
      return "unsupported_problem";
    case StatusCode::unsupported_arch:
      return "unsupported_arch";
    case StatusCode::not_built:
      return "not_built";
    case StatusCode::out_of_memory:
      return "out_of_memory";
    case StatusCode::cuda_error:
      return "cuda_error";
  }
  return "?";
}

}  // namespace noisefloor
