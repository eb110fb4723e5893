// adamw on the host, in float on all cores: one vectorised loop over chunks, whose copy is rounded from cache.
#include "kernels/adamw/adamw.h"
#include "kernels/core/host_chunks.h"

namespace noisefloor::adamw {
namespace {

template <bool kEma>
void update_chunk(const Constants c, const Step s, std::int64_t count, const float* __restrict g, float* __restrict p,
                  float* __restrict m, float* __restrict v, float* __restrict ema) {
  for (std::int64_t i = 0; i < count; ++i) {
    float unread = 0;
    update(c, s, g[i], p[i], m[i], v[i], kEma ? ema[i] : unread);
  }
}

}  // namespace

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  const Constants constants = constants_of(p);
  const Step step{t.step[0], t.step[1], t.step[2], t.step[3], t.grad_scale[0]};
  parallel_for_memory(p.elements, 8 * kHostChunk, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t begin = first; begin < last; begin += kHostChunk) {
      const std::int64_t count = std::min(kHostChunk, last - begin);
      const auto run = p.ema ? update_chunk<true> : update_chunk<false>;
      run(constants, step, count, t.g + begin, t.p + begin, t.m + begin, t.v + begin, p.ema ? t.ema + begin : nullptr);
      if (t.copy != nullptr) store_floats(dtype, t.copy, begin, count, t.p + begin);
    }
  });
  return success();
}

}  // namespace noisefloor::adamw
