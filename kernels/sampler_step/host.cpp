// sampler_step on the host, in float on all cores: widen a few thousand elements of each input into cache, update them
// in one vectorised loop, round them out. Noise comes from the polynomials of philox.h, eight blocks at a time with
// AVX2.
#include <algorithm>

#include "kernels/core/parallel.h"
#include "kernels/sampler_step/element.h"
#include "kernels/sampler_step/sampler_step.h"

namespace noisefloor::sampler_step {
namespace {

constexpr std::int64_t kChunk = 2048;  // elements: at most 6 buffers of 8 KiB, which the L2 cache of a core holds
static_assert(kChunk % kNormalsPerBlock == 0);

struct Buffers {
  float x[kChunk], model[kChunk], cond[kChunk], other[kChunk], x_next[kChunk];
};

void draw(const NoiseStream& stream, std::uint64_t image, std::uint32_t first_block, float* __restrict out) {
  for (std::uint32_t b = 0; b < kChunk / kNormalsPerBlock; ++b) {
    const Normal4 normal = box_muller4(noise_words(stream, image, first_block + b));
    for (int i = 0; i < kNormalsPerBlock; ++i) out[kNormalsPerBlock * b + static_cast<std::uint32_t>(i)] = normal.v[i];
  }
}

void add_scaled(float scale, const float* __restrict in, std::int64_t count, float* __restrict sum) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += scale * in[i];
}

// Elements [begin, begin + count) of image `image`.
void update(const Problem& problem, DType dtype, const Tensors& t, const Coefficients& c, std::int64_t image,
            std::int64_t begin, std::int64_t count, Buffers& b) {
  const std::int64_t flat = image * problem.elements + begin;
  load_floats(dtype, t.x, flat, count, b.x);
  load_floats(dtype, t.model_output, flat, count, b.model);
  for (std::int64_t i = 0; i < count; ++i) b.model[i] = c.model_x * b.x[i] + c.model * b.model[i];
  if (problem.guided()) {
    load_floats(dtype, t.model_output, problem.total() + flat, count, b.cond);
    add_scaled(c.model_cond, b.cond, count, b.model);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    b.model[i] = clamp_symmetric(b.model[i], c.limit);  // x0 from here on
    b.x_next[i] = c.x * b.x[i] + c.x0 * b.model[i];
  }
  const auto add = [&](float scale, const void* tensor) {
    if (tensor == nullptr) return;
    load_floats(dtype, tensor, flat, count, b.other);
    add_scaled(scale, b.other, count, b.x_next);
  };
  add(c.history, t.history);
  add(c.noise, t.noise);
  add(c.previous, t.previous_frame);
  if (problem.noise == Noise::drawn) {
    draw(noise_stream(problem), static_cast<std::uint64_t>(image), static_cast<std::uint32_t>(begin / kNormalsPerBlock),
         b.other);
    add_scaled(c.noise, b.other, count, b.x_next);
  }
  store_floats(dtype, t.x_next, flat, count, b.x_next);
  if (t.history_out == nullptr) return;
  for (std::int64_t i = 0; i < count; ++i) b.x[i] = c.history_x * b.x[i] + c.history_x0 * b.model[i];
  store_floats(dtype, t.history_out, flat, count, b.x);
}

}  // namespace

Status launch_host(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&, const LaunchContext&) {
  const Coefficients row = reinterpret_cast<const Coefficients*>(tensors.coefficients)[problem.step];
  const std::int64_t chunks = (problem.elements + kChunk - 1) / kChunk;
  parallel_for(problem.batch * chunks, 16, [&](std::int64_t first, std::int64_t last) {
    Buffers buffers;
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t begin = i % chunks * kChunk;
      update(problem, dtype, tensors, row, i / chunks, begin, std::min(kChunk, problem.elements - begin), buffers);
    }
  });
  return success();
}

}  // namespace noisefloor::sampler_step
