// elementwise, tensor cores: sums, and what activations are applied to, as products with diagonal matrices
// (kernels/device/diagonal_mma.cuh), by warps that take 32 vectors in grid-stride loops.
//
// What differs from tiled: the arithmetic. README.md: why it does not win.
//
// Requires: bf16 or fp16; add, scale, geglu, relu or silu; streams of a multiple of 16 bytes (geglu: rows).
// Bound: memory traffic.
// Numerics: exact products, fp32 sums; the scale of add and scale split into terms of the row's type (24 bits).
// Source: original.
#include "kernels/device/diagonal_mma.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/elementwise/map.cuh"

namespace noisefloor::elementwise {
namespace {

constexpr int kThreads = kDiagonalThreads;

template <class T>
__device__ __forceinline__ uint4 load(const void* base, std::int64_t vector) {
  return load_16_bytes(static_cast<const T*>(base) + vector * 8);
}

template <class T, Operation kOperation>
__global__ void __launch_bounds__(kThreads)
    linear_kernel(const Tensors t, float scale, std::uint32_t vectors, const Divider per_row) {
  constexpr int kTerms = kOperation == Operation::add || kOperation == Operation::scale ? 3 : 1;
  const DiagonalCoefficients<T, kTerms> coefficients(scale, kOperation == Operation::add ? scale : 0.0f);
  const uint4 none{};
  for_each_warp_vector(vectors, [&](std::uint32_t vector, bool valid) {
    float out[8] = {};
    if constexpr (kOperation == Operation::geglu) {
      const std::int64_t value_at = vector + static_cast<std::int64_t>(vector / per_row) * per_row.divisor();
      float gate[8] = {};
      diagonal_product(coefficients, load<T>(t.a, value_at), none, out);
      diagonal_product(coefficients, load<T>(t.a, value_at + per_row.divisor()), none, gate);
#pragma unroll
      for (int i = 0; i < 8; ++i) out[i] *= gelu<T>(gate[i]);
    } else if constexpr (kOperation == Operation::add) {
      diagonal_product(coefficients, load<T>(t.a, vector), load<T>(t.b, vector), out);
    } else {
      diagonal_product(coefficients, load<T>(t.a, vector), none, out);
      if constexpr (kOperation != Operation::scale) {
#pragma unroll
        for (float& v : out) v = kOperation == Operation::relu ? relu(v) : silu<T>(v);
      }
    }
    if (valid) store_stream<T>(t.y, vector, out);
  });
}

template <class T, Operation kOperation>
Status launch(const Problem& p, const Tensors& t, const LaunchContext& context, float scale = 1) {
  const auto vectors = vectors_of<T>(p.total());
  const Divider per_row(vectors_of<T>(p.op == Operation::geglu ? p.channels : 8));
  return launch_kernel("elementwise tensor_core_sm80", linear_kernel<T, kOperation>,
                       {.grid = diagonal_grid(vectors, 1, context), .block = kThreads}, context.stream, t, scale,
                       vectors, per_row);
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    switch (p.op) {
      case Operation::add:
        return launch<T, Operation::add>(p, t, context, static_cast<float>(p.scale));
      case Operation::scale:
        return launch<T, Operation::scale>(p, t, context, static_cast<float>(p.scale));
      case Operation::geglu:
        return launch<T, Operation::geglu>(p, t, context);
      case Operation::relu:
        return launch<T, Operation::relu>(p, t, context);
      default:
        return launch<T, Operation::silu>(p, t, context);
    }
  });
}

}  // namespace noisefloor::elementwise
