// Kernel resources in a build without CUDA.
#include <stdexcept>

#include "bench/counters/kernel_resources.h"

namespace noisefloor {

std::vector<KernelResources> kernel_resources(const std::function<Status(Stream)>&) {
  throw std::runtime_error("no CUDA in this build: there are no kernels to ask about");
}

}  // namespace noisefloor
