// training_batch, tiled: a block works on one image, whose draws one of its threads makes; 16 bytes per thread and
// tensor.
//
// Better than naive: what an image's elements share is drawn once a block, every number of a Philox block is used, and
// its first two rounds start from what the image's blocks share (kernels/device/image_noise.h).
//
// Tile: as many threads as an image has vectors, at most 256, by 4 vectors each. An image that is neither moved nor
// mirrored is read in vectors, others element by element. Shared memory: the image's draws.
//
// Bound: in a step's small batches the latency of a launch and of a draw; else instructions.
//
// Requires: images of a multiple of 4 elements; below 2^31 blocks.
// Numerics: levels in double, the rest in fp32.
// Source: original.
#include <algorithm>

#include "kernels/device/dispatch.cuh"
#include "kernels/device/image_noise.h"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/griddepcontrol.cuh"
#include "kernels/training_batch/training_batch.h"

namespace noisefloor::training_batch {
namespace {

constexpr std::uint32_t kMostThreads = 256, kVectors = 4;

struct Shared {
  Draw draw;
  Level level;
};

template <class T>
__device__ void write_label(const Recipe& r, const Tensors& t, const Shared& s, std::uint32_t image) {
  if (threadIdx.x == 0) t.level[image] = s.level.level;
  if (r.classes == 0) return;
  const float label = t.labels[s.draw.image];
  T* const row = static_cast<T*>(t.one_hot) + static_cast<std::int64_t>(image) * r.classes;
  for (int c = static_cast<int>(threadIdx.x); c < r.classes; c += static_cast<int>(blockDim.x))
    row[c] = from_float<T>(!s.draw.unlabelled && label == static_cast<float>(c) ? 1.0f : 0.0f);
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    tiled_kernel(const __grid_constant__ Recipe r, const __grid_constant__ Tensors t, std::uint32_t vectors,
                 std::uint32_t tiles) {
  __shared__ Shared s;
  ptx::griddepcontrol_wait();
  const std::uint32_t image = blockIdx.x / tiles, tile = blockIdx.x - image * tiles;
  const NoiseStream stream = stream_of(r, t.step);
  if (threadIdx.x == 0) {
    s.draw = draw(r, stream, image);
    s.level = level_of(r, s.draw);
  }
  __syncthreads();
  const ImageNoise noise(stream, image);
  const Level level = s.level;
  const bool moved = s.draw.moved();
  const float* const from = t.images + static_cast<std::int64_t>(s.draw.image) * vectors * 4;
  const std::int64_t to = static_cast<std::int64_t>(image) * vectors * 4;
  const std::uint32_t begin = tile * blockDim.x * kVectors, end = min(vectors, begin + blockDim.x * kVectors);
  for (std::uint32_t vector = begin + threadIdx.x; vector < end; vector += blockDim.x) {
    float x0[4], x[4];
    if (!moved) {
      load_vector<float>(from + vector * 4, x0);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t source = source_of(r, s.draw, static_cast<std::int32_t>(vector * 4) + i);
        x0[i] = source < 0 ? -1.0f : from[source];
      }
    }
    const Normal4 z = box_muller4(noise.words(stream, vector));
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = level.alpha * x0[i] + level.sigma * z.v[i];
    store_vector<float>(t.x0 + to + vector * 4, x0);
    store_vector<float>(t.x + to + vector * 4, x);
    if (t.noise) store_vector<float>(t.noise + to + vector * 4, z.v);
  }
  if (tile == 0) write_label<T>(r, t, s, image);
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const auto vectors = static_cast<std::uint32_t>(p.elements() / 4);
    const std::uint32_t threads = std::min(kMostThreads, (vectors + 31) / 32 * 32);
    const std::uint32_t tiles = (vectors + threads * kVectors - 1) / (threads * kVectors);
    const LaunchShape shape{.grid = tiles * static_cast<std::uint32_t>(p.batch),
                            .block = threads,
                            .programmatic = context.programmatic_launch};
    return launch_kernel("training_batch tiled_kernel", tiled_kernel<T>, shape, context.stream, recipe_of(p), t,
                         vectors, tiles);
  });
}

}  // namespace noisefloor::training_batch
