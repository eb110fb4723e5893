// q_sample on the host, in float on all cores: chunks of an image widened into cache, one vectorised loop.
#include "kernels/core/host_chunks.h"
#include "kernels/q_sample/q_sample.h"

namespace noisefloor::q_sample {

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  const NoiseStream stream = noise_stream(p);
  for_host_chunks<2>(
      p.batch, p.elements, [&](std::int64_t image, std::int64_t begin, std::int64_t count, auto& buffers) {
        auto& [x, z] = buffers.at;
        const std::int64_t flat = image * p.elements + begin;
        load_floats(dtype, t.x0, flat, count, x);
        t.noise != nullptr ? load_floats(dtype, t.noise, flat, count, z) : draw_host_chunk(stream, image, begin, z);
        const float alpha = t.levels[2 * image], sigma = t.levels[2 * image + 1];
        for (std::int64_t i = 0; i < count; ++i) x[i] = alpha * x[i] + sigma * z[i];
        store_floats(dtype, t.x_t, flat, count, x);
        if (t.noise_out != nullptr) store_floats(dtype, t.noise_out, flat, count, z);
      });
  return success();
}

}  // namespace noisefloor::q_sample
