// The GPU that tests share: its context is made once.
#pragma once

#include <memory>

#include "bench/platform/platform.h"

namespace noisefloor {

inline Platform& device() {
  static const std::unique_ptr<Platform> platform = make_cuda_platform(0);
  return *platform;
}

}  // namespace noisefloor
