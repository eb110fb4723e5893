// resample, tensor cores: the mean of four pixels as products with diagonals of 1/4 (kernels/device/diagonal_mma.cuh),
// two pixels a product; scaled pixels as products with a diagonal of the scale.
//
// What differs from tiled: the arithmetic. README.md: why it does not win.
//
// Tile: warps of 32 vectors of y (nearest_up2: of x) in grid-stride loops. Shared memory: none.
//
// Bound: memory traffic; 1/8 of the products is wanted.
//
// Requires: average_down2 or a scale (nothing else computes); bf16 or fp16; pixels of a multiple of 16 bytes.
// Numerics: exact products (1/4 is a power of two, a scale split into terms of 24 bits), fp32 sums, one rounding at the
// end.
// Source: original.
#include "kernels/device/diagonal_mma.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/resample/device.cuh"

namespace noisefloor::resample {
namespace {

// A scaled mean's factor, in three terms, or 1/4, in one.
template <class T>
__device__ __forceinline__ auto coefficients_of(const ScaledDownMap<T>& map) {
  return DiagonalCoefficients<T, 3>(map.factor, map.factor);
}
template <class T>
__device__ __forceinline__ auto coefficients_of(const DownMap<T>&) {
  return DiagonalCoefficients<T, 1>(0.25f, 0.25f);
}

template <class T, class Map>
__global__ void __launch_bounds__(kDiagonalThreads) average_kernel(const Map map) {
  const auto quarter = coefficients_of(map);
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

template <class T>
__global__ void __launch_bounds__(kDiagonalThreads) scaled_up_kernel(const ScaledUpMap<T> map) {
  const DiagonalCoefficients<T, 3> coefficients(map.scale, 0.0f);
  for_each_warp_vector(map.vectors, [&](std::uint32_t vector, bool valid) {
    float scaled[8] = {};
    diagonal_product(coefficients, load_16_bytes(map.at(0, vector)), uint4{}, scaled);
    const uint4 bits[1] = {pack_vector<T>(scaled)};
    if (valid) map.UpMap::apply(vector, bits);
  });
}

template <class Map>
Status launch(void (*kernel)(Map), const Map& map, const LaunchContext& context) {
  return launch_kernel("resample tensor_core_sm80", kernel,
                       {.grid = diagonal_grid(map.vectors, 1, context), .block = kDiagonalThreads}, context.stream,
                       map);
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    if (p.op == Operation::nearest_up2) return launch(scaled_up_kernel<T>, ScaledUpMap<T>(p, t), context);
    if (p.scale != 1) return launch(average_kernel<T, ScaledDownMap<T>>, ScaledDownMap<T>(p, t), context);
    return launch(average_kernel<T, DownMap<T>>, down_map<T>(p, t), context);
  });
}

}  // namespace noisefloor::resample
