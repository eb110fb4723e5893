// q_sample, tensor cores: alpha x0 + sigma z as a product with a matrix that holds alpha and sigma on its diagonals
// (kernels/device/diagonal_mma.cuh), one image a block row.
//
// What differs from tiled: the multiply-adds. README.md: why it does not win.
//
// Tile: warps of 32 vectors, in a loop over their image, so that coefficients are split once per warp. Drawn noise is
// added after the product, in fp32, since its rounding to 16 bits is not part of the op.
//
// Bound: memory traffic; 1/8 of the products is wanted.
//
// Requires: bf16 or fp16; an image's length that is a multiple of 8; batch of at most 65535.
// Numerics: exact products, fp32 sums; coefficients split into terms of the row's type (24 bits).
// Source: original.
#include "kernels/device/diagonal_mma.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/q_sample/map.cuh"

namespace noisefloor::q_sample {
namespace {

template <class T>
__global__ void __launch_bounds__(kDiagonalThreads)
    tensor_core_kernel(const Tensors t, const NoiseStream stream, const Divider per_image) {
  const std::uint32_t image = blockIdx.y;
  const std::uint32_t begin = image * per_image.divisor();
  const float alpha = t.levels[2 * image], sigma = t.levels[2 * image + 1];
  const DiagonalCoefficients<T, 3> coefficients(alpha, sigma);
  for_each_warp_vector(per_image.divisor(), [&](std::uint32_t within, bool valid) {
    const std::int64_t i = static_cast<std::int64_t>(begin + within) * 8;
    const uint4 x0 = load_16_bytes(static_cast<const T*>(t.x0) + i);
    uint4 z{};
    if (t.noise) z = load_16_bytes(static_cast<const T*>(t.noise) + i);
    float out[8] = {};
    diagonal_product(coefficients, x0, z, out);
    float drawn[8];
    if (!t.noise) {
      draw_vector(stream, image, within, drawn);
#pragma unroll
      for (int k = 0; k < 8; ++k) out[k] += sigma * drawn[k];
    }
    if (!valid) return;
    store_stream<T>(t.x_t, begin + within, out);
    if (t.noise_out) store_stream<T>(t.noise_out, begin + within, drawn);
  });
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    const Divider per_image(static_cast<std::uint32_t>(p.elements / 8));
    const dim3 grid = diagonal_grid(per_image.divisor(), p.batch, context);
    return launch_kernel("q_sample tensor_core_kernel", tensor_core_kernel<T>,
                         {.grid = grid, .block = kDiagonalThreads}, context.stream, t, noise_stream(p), per_image);
  });
}

}  // namespace noisefloor::q_sample
