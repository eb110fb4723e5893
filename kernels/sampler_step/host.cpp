// sampler_step on the host, in float on all cores: widen a few thousand elements of each input into cache, update them
// in vectorised loops, round them out.
#include "kernels/core/host_chunks.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {
namespace {

void add_scaled(float scale, const float* __restrict in, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += scale * in[i];
}

}  // namespace

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  const Coefficients c = reinterpret_cast<const Coefficients*>(t.coefficients)[p.step];
  for_host_chunks<4>(p.batch, p.elements,
                     [&](std::int64_t image, std::int64_t begin, std::int64_t count, auto& buffers) {
                       auto& [x, x0, other, x_next] = buffers.at;
                       const std::int64_t flat = image * p.elements + begin;
                       const auto add = [&](float scale, const void* tensor, std::int64_t at, float* sum) {
                         if (tensor == nullptr) return;
                         load_floats(dtype, tensor, at, count, other);
                         add_scaled(scale, other, count, sum);
                       };
                       load_floats(dtype, t.x, flat, count, x);
                       load_floats(dtype, t.model_output, flat, count, x0);
                       for (std::int64_t i = 0; i < count; ++i) x0[i] = c.model_x * x[i] + c.model * x0[i];
                       if (p.guided()) add(c.model_cond, t.model_output, p.total() + flat, x0);
                       for (std::int64_t i = 0; i < count; ++i) {
                         const float below = x0[i] > c.limit ? c.limit : x0[i];  // a NaN passes
                         x0[i] = below < -c.limit ? -c.limit : below;
                         x_next[i] = c.x * x[i] + c.x0 * x0[i];
                       }
                       add(c.history, t.history, flat, x_next);
                       add(c.noise, t.noise, flat, x_next);
                       add(c.previous, t.previous_frame, flat, x_next);
                       if (p.noise == Noise::drawn) {
                         draw_host_chunk(noise_stream(p), image, begin, other);
                         add_scaled(c.noise, other, count, x_next);
                       }
                       store_floats(dtype, t.x_next, flat, count, x_next);
                       if (t.history_out == nullptr) return;
                       for (std::int64_t i = 0; i < count; ++i) x[i] = c.history_x * x[i] + c.history_x0 * x0[i];
                       store_floats(dtype, t.history_out, flat, count, x);
                     });
  return success();
}

}  // namespace noisefloor::sampler_step
