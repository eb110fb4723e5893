// training_batch for sm_90a: a block on a tile of one image, as tiled. While one thread draws what its elements share,
// the others draw their noise; as soon as the image is chosen the bulk copy engine brings the rows that the tile can be
// made of to shared memory, where a moved or mirrored one is gathered.
//
// Better than tiled: noise does not wait for the draw, nor the image for the level, whose double arithmetic is the
// longest chain; and no gather goes to memory. Honours programmatic dependent launch.
//
// Requires: images of a multiple of 4 elements; below 2^31 blocks; a tile's rows, and one above and below, that fit 224
// KiB.
// Bound: in a step's small batches the latency of a launch and of a draw; else instructions.
// Numerics: levels in double, the rest in fp32.
// Source: original; PTX ISA, "cp.async.bulk".
#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/training_batch/device.cuh"

namespace noisefloor::training_batch {
namespace {

// Elements of an image, multiples of 4, that a tile can be made of, whichever way it is moved.
struct Span {
  std::int32_t begin, end;
};
__device__ __forceinline__ Span span_of(const Recipe& r, std::int32_t first, std::int32_t last, std::int32_t elements) {
  const std::int32_t row = r.w * r.channels;
  return {max(first / row - 1, 0) * row / 4 * 4, min(((last / row + 2) * row + 3) / 4 * 4, elements)};
}

template <class T>
__global__ void __launch_bounds__(kMostThreads)
    bulk_kernel(const __grid_constant__ Recipe r, const __grid_constant__ Tensors t, std::uint32_t vectors,
                std::uint32_t tiles) {
  extern __shared__ __align__(128) float rows[];
  __shared__ Shared s;
  __shared__ std::uint64_t barrier;
  const std::uint32_t arrived = ptx::shared_address(&barrier);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(arrived, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::griddepcontrol_wait();
  const std::uint32_t image = blockIdx.x / tiles, tile = blockIdx.x - image * tiles;
  const std::uint32_t begin = tile * blockDim.x * kVectors, end = min(vectors, begin + blockDim.x * kVectors);
  const NoiseStream stream = stream_of(r, t.step);
  const auto elements = static_cast<std::int32_t>(vectors * 4);
  const Span span = span_of(r, static_cast<std::int32_t>(begin * 4), static_cast<std::int32_t>(end * 4) - 1, elements);
  if (threadIdx.x == 0) {
    s.draw = draw(r, stream, image);
    const std::uint32_t bytes = static_cast<std::uint32_t>(span.end - span.begin) * 4;
    ptx::mbarrier_arrive_expect_tx(arrived, bytes);
    ptx::bulk_load(ptx::shared_address(rows),
                   t.images + static_cast<std::int64_t>(s.draw.image) * elements + span.begin, bytes, arrived);
    s.level = level_of(r, s.draw);
  }
  const ImageNoise noise(stream, image);
  Normal4 z[kVectors];
#pragma unroll
  for (std::uint32_t k = 0; k < kVectors; ++k)
    if (begin + k * blockDim.x + threadIdx.x < end)
      z[k] = box_muller4(noise.words(stream, begin + k * blockDim.x + threadIdx.x));
  __syncthreads();
  ptx::mbarrier_wait(arrived, 0);
  const bool moved = s.draw.moved();
#pragma unroll
  for (std::uint32_t k = 0; k < kVectors; ++k) {
    const std::uint32_t vector = begin + k * blockDim.x + threadIdx.x;
    if (vector >= end) break;
    float x0[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::int32_t within = static_cast<std::int32_t>(vector * 4) + i;
      const std::int32_t source = moved ? source_of(r, s.draw, within) : within;
      x0[i] = source < 0 ? -1.0f : rows[source - span.begin];
    }
    write_vector(t, s.level, (static_cast<std::int64_t>(image) * vectors + vector) * 4, x0, z[k]);
  }
  if (tile == 0) write_label<T>(r, t, s, image);
}

}  // namespace

Status launch_ptx_sm90a(const Problem& p, DType dtype, const Tensors& t, const Scratch&, const LaunchContext& context) {
  return with_type(dtype, [&]<class T>(T) {
    const Tiles tiles(p);
    const LaunchShape shape{.grid = tiles.of_image * static_cast<std::uint32_t>(p.batch),
                            .block = tiles.threads,
                            .shared_bytes = static_cast<std::size_t>(bulk_bytes(p)),
                            .shared_limit = kMostBulkBytes,
                            .programmatic = context.programmatic_launch};
    return launch_kernel("training_batch bulk_kernel", bulk_kernel<T>, shape, context.stream, recipe_of(p), t,
                         tiles.vectors, tiles.of_image);
  });
}

}  // namespace noisefloor::training_batch
