// edm_precondition, tensor cores: c_skip x + c_out f, c_in x or c_out dd, as a product with a matrix that holds the
// coefficients on its diagonals (kernels/device/diagonal_mma.cuh), one image a block row.
//
// What differs from tiled: the multiply-adds. README.md: why it does not win.
//
// Tile: warps of 32 vectors, in a loop over their image, so that coefficients are split once per warp.
//
// Bound: memory traffic; 1/8 (c_in: 1/16) of the products is wanted.
//
// Requires: bf16 or fp16; an image's length that is a multiple of 8; batch of at most 65535.
// Numerics: exact products, fp32 sums; coefficients split into terms of the row's type (24 bits).
// Source: original.
#include "kernels/device/diagonal_mma.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/edm_precondition/map.cuh"

namespace noisefloor::edm_precondition {
namespace {

// kGradient: x is dd.
template <class T, bool kGradient>
__global__ void __launch_bounds__(kDiagonalThreads)
    tensor_core_kernel(const Tensors t, Side side, float sigma_data, std::uint32_t per_image) {
  const std::uint32_t image = blockIdx.y;
  const std::uint32_t begin = image * per_image;
  const float sigma = t.sigma[image];
  Scales scale = scales(kGradient ? Side::output : side, sigma, sigma_data);
  if constexpr (kGradient) scale = {scale.f, 0.0f};
  const DiagonalCoefficients<T, 3> coefficients(scale.x, scale.f);
  for_each_warp_vector(per_image, [&](std::uint32_t within, bool valid) {
    const std::int64_t i = static_cast<std::int64_t>(begin + within) * 8;
    const uint4 x = load_16_bytes(static_cast<const T*>(t.x) + i);
    uint4 f{};
    if (t.f) f = load_16_bytes(static_cast<const T*>(t.f) + i);
    float out[8] = {};
    diagonal_product(coefficients, x, f, out);
    if (!valid) return;
    store_stream<T>(t.y, begin + within, out);
    if (t.c_noise && within == 0) t.c_noise[image] = logf(sigma) / 4;
  });
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    const auto per_image = static_cast<std::uint32_t>(p.elements / 8);
    const dim3 grid = diagonal_grid(per_image, p.batch, context);
    const auto kernel = p.side == Side::gradient ? tensor_core_kernel<T, true> : tensor_core_kernel<T, false>;
    return launch_kernel("edm_precondition tensor_core_kernel", kernel, {.grid = grid, .block = kDiagonalThreads},
                         context.stream, t, p.side, static_cast<float>(p.sigma_data), per_image);
  });
}

}  // namespace noisefloor::edm_precondition
