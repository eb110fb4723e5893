// mse_loss on the host, in float on all cores: chunks of an image widened into cache, one vectorised loop. Each chunk's
// sum of squares is added in order.
#include "kernels/core/dtype.h"
#include "kernels/core/host_chunks.h"
#include "kernels/mse_loss/mse_loss.h"

namespace noisefloor::mse_loss {

std::size_t host_workspace_bytes(const Problem& p, DType, const DeviceInfo&) {
  return static_cast<std::size_t>(host_chunks(p.batch, p.elements)) * sizeof(double);
}

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch& scratch, const LaunchContext&) {
  const auto total = static_cast<double>(p.total());
  const double sum = sum_host_chunks<2>(
      p.batch, p.elements, scratch.workspace,
      [&](std::int64_t image, std::int64_t begin, std::int64_t count, auto& buffers) {
        auto& [y, target] = buffers.at;
        const std::int64_t flat = image * p.elements + begin;
        load_floats(dtype, t.y, flat, count, y);
        load_floats(dtype, t.target, flat, count, target);
        const float weight = t.sigma == nullptr ? 1.0f : weight_of(t.sigma[image], static_cast<float>(p.sigma_data));
        const auto slope = static_cast<float>(p.scale * 2 * static_cast<double>(weight) / total);
        float squares = 0;
        for (std::int64_t i = 0; i < count; ++i) {
          const float difference = y[i] - target[i];
          squares += difference * difference;
          y[i] = slope * difference;
        }
        store_floats(dtype, t.dy, flat, count, y);
        return static_cast<double>(weight) * static_cast<double>(squares);
      });
  t.loss[0] = static_cast<float>(sum / total);
  return success();
}

}  // namespace noisefloor::mse_loss
