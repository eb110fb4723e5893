// layernorm_backward on the host, in float on all cores (kernels/core/host_norm.h): some rows a task, for their dx,
// behind mean and rstd; then tasks of some channels of an image's rows, for the sums. Workspace, fp32: mean, rstd
// [rows], sums [images, 2, channels].
#include "kernels/core/host_norm.h"
#include "kernels/layernorm_backward/layernorm_backward.h"

namespace noisefloor::layernorm_backward {

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(2 * p.rows + p.images * 2 * p.channels) * sizeof(float);
}

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext&) {
  auto* const means = static_cast<float*>(scratch.workspace);
  float* const rstds = means + p.rows;
  const HostNorm<Tensors> norm{shape_of(p), dtype, dtype, t, means, rstds};
  parallel_for(p.rows, 16, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> x(static_cast<std::size_t>(p.channels));
    const auto length = static_cast<double>(p.channels);
    for (std::int64_t row = begin; row < end; ++row) {
      load_floats(dtype, t.x, row * p.channels, p.channels, x.data());
      const auto mean = static_cast<float>(std::accumulate(x.begin(), x.end(), 0.0) / length);
      double squares = 0;
      for (const float value : x) squares += (value - mean) * (value - mean);
      means[row] = mean;
      rstds[row] = static_cast<float>(1 / std::sqrt(squares / length + p.eps));
    }
    for (std::int64_t next = 0; begin < end; begin = next) {  // rows of one image
      next = std::min(end, (begin / p.rows_per_image() + 1) * p.rows_per_image());
      HostNormTask(norm, begin, next - begin, 0, p.channels).write_dx_of_rows();
    }
  });
  if (p.sums()) each_host_norm_task(norm, 1, rstds + p.rows, [](auto&) {});
  return success();
}

}  // namespace noisefloor::layernorm_backward
