// training_batch on the host, on all cores: chunks of an image, whose noise is drawn into cache by vectorised loops.
#include <algorithm>

#include "kernels/core/dtype.h"
#include "kernels/core/host_chunks.h"
#include "kernels/training_batch/training_batch.h"

namespace noisefloor::training_batch {
namespace {

void write_label(const Problem& p, DType dtype, const Tensors& t, const Draw& d, std::int64_t image) {
  for (std::int64_t c = 0; c < p.classes; ++c)
    store_element(dtype, t.one_hot, image * p.classes + c,
                  !d.unlabelled && t.labels[d.image] == static_cast<float>(c) ? 1 : 0);
}

}  // namespace

Status launch_host(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext&) {
  const Recipe recipe = recipe_of(p);
  const NoiseStream stream = stream_of(recipe, t.step);
  for_host_chunks<1>(p.batch, p.elements(),
                     [&](std::int64_t image, std::int64_t begin, std::int64_t count, auto& buffers) {
                       auto& [z] = buffers.at;
                       const Draw d = draw(recipe, stream, static_cast<std::uint64_t>(image));
                       const Level level = level_of(recipe, d);
                       const float* const from = t.images + d.image * p.elements();
                       const std::int64_t flat = image * p.elements() + begin;
                       float *const x0 = t.x0 + flat, *const x = t.x + flat;
                       if (!d.moved()) std::copy_n(from + begin, count, x0);
                       for (std::int64_t i = 0; d.moved() && i < count; ++i) {
                         const std::int32_t source = source_of(recipe, d, static_cast<std::int32_t>(begin + i));
                         x0[i] = source < 0 ? -1.0f : from[source];
                       }
                       draw_host_chunk(stream, image, begin, z, count);
                       for (std::int64_t i = 0; i < count; ++i) x[i] = level.alpha * x0[i] + level.sigma * z[i];
                       if (t.noise != nullptr) std::copy_n(z, count, t.noise + flat);
                       if (begin > 0) return;
                       t.level[image] = level.level;
                       write_label(p, dtype, t, d, image);
                     });
  return success();
}

}  // namespace noisefloor::training_batch
