// resample, tensor cores: the mean of four pixels as products with diagonals of 1/4 (kernels/device/diagonal_mma.cuh),
// two pixels a product.
//
// What differs from tiled: the arithmetic. README.md: why it does not win.
//
// Tile: warps of 32 vectors of y in grid-stride loops. Shared memory: none.
//
// Bound: memory traffic; 1/8 of the products is wanted.
//
// Requires: average_down2 (nothing else computes); bf16 or fp16; pixels of a multiple of 16 bytes.
// Numerics: exact products (1/4 is a power of two), fp32 sums, one rounding at the end.
// Source: original.
#include "kernels/device/diagonal_mma.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/resample/device.cuh"

namespace noisefloor::resample {
namespace {

template <class T>
__global__ void __launch_bounds__(kDiagonalThreads) average_kernel(const DownMap<T> map) {
  const DiagonalCoefficients<T, 1> quarter(0.25f, 0.25f);
  for_each_warp_vector(map.vectors, [&](std::uint32_t vector, bool valid) {
    uint4 corners[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) corners[i] = load_16_bytes(map.at(i, vector));
    float mean[8] = {};
    diagonal_product(quarter, corners[0], corners[1], mean);
    diagonal_product(quarter, corners[2], corners[3], mean);
    if (valid) store_stream<T>(map.y, vector, mean);
  });
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    const DownMap<T> map = down_map<T>(p, t);
    return launch_kernel("resample average_kernel", average_kernel<T>,
                         {.grid = diagonal_grid(map.vectors, 1, context), .block = kDiagonalThreads}, context.stream,
                         map);
  });
}

}  // namespace noisefloor::resample
