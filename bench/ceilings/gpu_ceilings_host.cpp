// GPU ceilings in a build without CUDA.
#include <stdexcept>

#include "bench/ceilings/ceilings.h"

namespace noisefloor {

Ceilings measure_gpu_ceilings(int) {
  throw std::runtime_error("no CUDA in this build: only the host's ceilings can be measured");
}
DeviceIdentity gpu_identity(int) {
  throw std::runtime_error("no CUDA in this build: only the host's ceilings can be measured");
}

}  // namespace noisefloor
