// grad_norm on the host: a vectorised sum of each chunk, on a few cores, added in order.
#include <cmath>

#include "kernels/core/host_chunks.h"
#include "kernels/grad_norm/grad_norm.h"

namespace noisefloor::grad_norm {

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(host_chunks(1, p.elements)) * sizeof(double);
}

Status launch_host(const Problem& p, DType, const Tensors& t, const Scratch& scratch, const LaunchContext&) {
  const auto squares_of = [&](std::int64_t, std::int64_t begin, std::int64_t count, auto&) {
    float squares = 0;
    for (std::int64_t i = begin; i < begin + count; ++i) squares += t.g[i] * t.g[i];
    return static_cast<double>(squares);
  };
  const double sum = sum_host_chunks<1>(1, p.elements, scratch.workspace, squares_of, kMemoryThreads);
  t.norm[0] = static_cast<float>(std::sqrt(sum));
  t.scale[0] = scale_of(t.norm[0], static_cast<float>(p.clip));
  return success();
}

}  // namespace noisefloor::grad_norm
