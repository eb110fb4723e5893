// Kernel resources in a build without CUDA.
#include <stdexcept>

#include "bench/counters/kernel_resources.h"

namespace noisefloor {

std::vector<KernelResources> kernel_resources(Stream, const std::function<Status()>&) {
  throw std::runtime_error("no CUDA in this build: there are no kernels to ask about");
}

std::vector<KernelResources> kernel_resources(const std::function<Status(Stream)>&) {
  return kernel_resources(nullptr, {});
}

int ordinary_edges(Stream, const std::function<Status()>&) {
  throw std::runtime_error("no CUDA in this build: there are no edges to count");
}

}  // namespace noisefloor
