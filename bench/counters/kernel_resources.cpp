#include "bench/counters/kernel_resources.h"

namespace noisefloor {

const KernelResources* dominant_kernel(std::span<const KernelResources> kernels) {
  const KernelResources* dominant = nullptr;
  for (const KernelResources& kernel : kernels)
    if (dominant == nullptr || kernel.resident_bytes > dominant->resident_bytes) dominant = &kernel;
  return dominant;
}

}  // namespace noisefloor
