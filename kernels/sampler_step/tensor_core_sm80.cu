// sampler_step, tensor cores: the linear form as products with matrices that hold its coefficients on their diagonals
// (kernels/device/diagonal_mma.cuh), by warps that take 32 vectors in grid-stride loops, so that coefficients are split
// once per warp.
//
// What differs from tiled: x0 before its clamp and all of x_next but its x0 term come out of mma.sync m16n8k16.
//
// Requires: bf16 (the first steps of a schedule have coefficients that fp16 cannot hold); an image's length that is a
// multiple of 8.
// Bound: memory traffic, as every variant. README.md: why it does not win.
// Numerics: exact products, fp32 sums as the tensor core makes them (truncated alignment); coefficients split into
// three terms of bf16 (24 bits); inputs must be finite: infinity times a zero coefficient is NaN here. Drawn noise is
// added after the products, in fp32.
// Source: original; bf16 splitting after Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence
// Datatype For Higher-Precision Computations" (2019).
#include "kernels/device/diagonal_mma.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/short_normals.cuh"
#include "kernels/sampler_step/arguments.cuh"

namespace noisefloor::sampler_step {
namespace {

using T = __nv_bfloat16;
using Split = DiagonalCoefficients<T, 3>;
constexpr int kLanes = kVectorLanes<T>;

__global__ void __launch_bounds__(kDiagonalThreads)
    tensor_core_kernel(const Arguments<T> a, const Divider vectors_per_image, const std::uint32_t vectors) {
  const Coefficients c = load_coefficients(a.row);
  const Split of_x_and_model(c.model_x, c.model), of_cond(c.model_cond, 0);
  const Split of_x_and_previous(c.x, c.previous), of_noise_and_history(c.noise, c.history);
  for_each_warp_vector(vectors, [&](std::uint32_t vector, bool valid) {
    const std::int64_t i = static_cast<std::int64_t>(vector) * kLanes;
    const auto load = [&](const T* tensor) { return tensor ? load_16_bytes(tensor + i) : uint4{}; };
    const uint4 x = load(a.x), model = load(a.model), cond = load(a.model_cond);
    const uint4 noise = load(a.noise), history = load(a.history), previous = load(a.previous);
    Lanes<kLanes> lanes{};
    diagonal_product(of_x_and_model, x, model, lanes.x0);
    if (a.model_cond) diagonal_product(of_cond, cond, uint4{}, lanes.x0);
    diagonal_product(of_x_and_previous, x, previous, lanes.x_next);
    if (a.noise || a.history) diagonal_product(of_noise_and_history, noise, history, lanes.x_next);
#pragma unroll
    for (int k = 0; k < kLanes; ++k) {
      lanes.x0[k] = clamp_symmetric(lanes.x0[k], c.limit);
      lanes.x_next[k] += c.x0 * lanes.x0[k];
    }
    if (!valid) return;
    if (a.drawn) {
      const std::uint32_t image = vector / vectors_per_image;
      float drawn[kLanes];
      draw_vector(a.stream, image, vector - image * vectors_per_image.divisor(), drawn);
      lanes.add(c.noise, drawn);
    }
    store_vector<T, CacheHint::once>(a.x_next + i, lanes.x_next);
    if (!a.history_out) return;
    unpack_vector<T>(x, lanes.x);
    lanes.keep(c);
    store_vector<T, CacheHint::once>(a.history_out + i, lanes.x);
  });
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                               const LaunchContext& context) {
  if (dtype != DType::bf16)
    return failure(StatusCode::unsupported_problem, "sampler_step tensor_core_sm80: needs bf16");
  const auto per_image = static_cast<std::uint32_t>(problem.elements / kLanes);
  const std::uint32_t vectors = per_image * static_cast<std::uint32_t>(problem.batch);
  return launch_kernel("sampler_step tensor_core_kernel", tensor_core_kernel,
                       {.grid = diagonal_grid(vectors, 1, context), .block = kDiagonalThreads}, context.stream,
                       make_arguments<T>(problem, tensors), Divider(static_cast<int>(per_image)), vectors);
}

}  // namespace noisefloor::sampler_step
