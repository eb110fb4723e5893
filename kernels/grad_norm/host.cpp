// grad_norm on the host: chunks on all cores, a vectorised sum of each left in the workspace; they are added in their
// order, whatever the number of threads.
#include <algorithm>
#include <cmath>

#include "kernels/core/parallel.h"
#include "kernels/grad_norm/grad_norm.h"

namespace noisefloor::grad_norm {
namespace {

constexpr std::int64_t kChunk = 4096;

std::int64_t chunks_of(const Problem& p) {
  return (p.elements + kChunk - 1) / kChunk;
}

}  // namespace

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(chunks_of(p)) * sizeof(double);
}

Status launch_host(const Problem& p, DType, const Tensors& t, const Scratch& scratch, const LaunchContext&) {
  auto* const sums = static_cast<double*>(scratch.workspace);
  parallel_for_memory(chunks_of(p), 16, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      const std::int64_t end = std::min((chunk + 1) * kChunk, p.elements);
      float sum = 0;
      for (std::int64_t i = chunk * kChunk; i < end; ++i) sum += t.g[i] * t.g[i];
      sums[chunk] = static_cast<double>(sum);
    }
  });
  double sum = 0;
  for (std::int64_t i = 0; i < chunks_of(p); ++i) sum += sums[i];
  t.norm[0] = static_cast<float>(std::sqrt(sum));
  t.scale[0] = scale_of(t.norm[0], static_cast<float>(p.clip));
  return success();
}

}  // namespace noisefloor::grad_norm
