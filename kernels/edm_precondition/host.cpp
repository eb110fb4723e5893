// edm_precondition on the host, in float on all cores: chunks of an image widened into cache, one vectorised loop.
#include <cmath>

#include "kernels/core/host_chunks.h"
#include "kernels/edm_precondition/edm_precondition.h"

namespace noisefloor::edm_precondition {

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  const auto sigma_data = static_cast<float>(p.sigma_data);
  for_host_chunks<2>(p.batch, p.elements,
                     [&](std::int64_t image, std::int64_t begin, std::int64_t count, auto& buffers) {
                       auto& [x, f] = buffers.at;
                       const bool gradient = p.side == Side::gradient;
                       Scales scale = scales(gradient ? Side::output : p.side, t.sigma[image], sigma_data);
                       if (gradient) scale.x = scale.f;
                       const std::int64_t flat = image * p.elements + begin;
                       load_floats(dtype, t.x, flat, count, x);
                       for (std::int64_t i = 0; i < count; ++i) x[i] *= scale.x;
                       if (t.f != nullptr) {
                         load_floats(dtype, t.f, flat, count, f);
                         for (std::int64_t i = 0; i < count; ++i) x[i] += scale.f * f[i];
                       }
                       store_floats(dtype, t.y, flat, count, x);
                     });
  if (t.c_noise != nullptr)
    for (std::int64_t i = 0; i < p.batch; ++i) t.c_noise[i] = std::log(t.sigma[i]) / 4;
  return success();
}

}  // namespace noisefloor::edm_precondition
