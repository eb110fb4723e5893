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
#include "kernels/training_batch/device.cuh"

namespace noisefloor::training_batch {
namespace {

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
    float x0[4];
    if (!moved) {
      load_vector<float>(from + vector * 4, x0);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int32_t source = source_of(r, s.draw, static_cast<std::int32_t>(vector * 4) + i);
        x0[i] = source < 0 ? -1.0f : from[source];
      }
    }
    write_vector(t, level, to + vector * 4, x0, box_muller4(noise.words(stream, vector)));
  }
  if (tile == 0) write_label<T>(r, t, s, image);
}

}  // namespace

Status launch_tiled(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Tiles tiles(p);
    const LaunchShape shape{.grid = tiles.of_image * static_cast<std::uint32_t>(p.batch),
                            .block = tiles.threads,
                            .programmatic = context.programmatic_launch};
    return launch_kernel("training_batch tiled_kernel", tiled_kernel<T>, shape, context.stream, recipe_of(p), t,
                         tiles.vectors, tiles.of_image);
  });
}

}  // namespace noisefloor::training_batch
