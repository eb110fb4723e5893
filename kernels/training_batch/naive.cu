// training_batch, naive: one thread per element, which draws anew what its image's elements share.
//
// Threads: 256, one element each; no shared memory. Three Philox blocks and a level in double an element.
//
// Bound: integer issue and arithmetic in double.
//
// Requires: nothing.
// Numerics: levels in double, the rest in fp32.
// Source: original.
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/training_batch/training_batch.h"

namespace noisefloor::training_batch {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    naive_kernel(const __grid_constant__ Recipe r, const Tensors t, std::int64_t total, std::int64_t elements) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= total) return;
  const std::int64_t image = i / elements;
  const auto within = static_cast<std::int32_t>(i - image * elements);
  const NoiseStream stream = stream_of(r, t.step);
  const Draw d = draw(r, stream, static_cast<std::uint64_t>(image));
  const Level level = level_of(r, d);
  const std::int32_t source = source_of(r, d, within);
  const float x0 = source < 0 ? -1.0f : t.images[d.image * elements + source];
  const float z = noise_element(stream, static_cast<std::uint64_t>(image), static_cast<std::uint32_t>(within));
  t.x0[i] = x0;
  t.x[i] = level.alpha * x0 + level.sigma * z;
  if (t.noise) t.noise[i] = z;
  if (within > 0) return;
  t.level[image] = level.level;
  for (int c = 0; c < r.classes; ++c)
    static_cast<T*>(t.one_hot)[image * r.classes + c] =
        from_float<T>(!d.unlabelled && t.labels[d.image] == static_cast<float>(c) ? 1.0f : 0.0f);
}

}  // namespace

Status launch_naive(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto blocks = static_cast<unsigned>((p.total() + kThreads - 1) / kThreads);  // at most 2^25
    return launch_kernel("training_batch naive_kernel", naive_kernel<T>, {.grid = blocks, .block = kThreads},
                         context.stream, recipe_of(p), t, p.total(), p.elements());
  });
}

}  // namespace noisefloor::training_batch
