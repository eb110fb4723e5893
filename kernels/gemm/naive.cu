// gemm, naive: one thread per output element, which walks a row of A and a row of B. The first variant, and the
// obvious GPU code that the other variants are compared with element by element.
//
// Tile 16x16 outputs, 256 threads, no shared memory; neighbours share rows only through L1.
//
// Bound: load instructions (two per FMA), at every problem.
//
// Requires: nothing beyond grid limits.
//
// Numerics: one fp32 FMA chain of length k.
//
// Source: original.
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gradient.cuh"
#include "kernels/gemm/launchers.h"

namespace noisefloor::gemm {
namespace {

template <class T>
__device__ float dot(const T* __restrict__ a, const T* __restrict__ b, std::int64_t k) {
  float sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum = fmaf(to_float(a[i]), to_float(b[i]), sum);
  return sum;
}

template <class T>
__global__ void __launch_bounds__(kNaiveTile* kNaiveTile)
    gemm_naive(const T* __restrict__ a, const T* __restrict__ b, std::int64_t m, std::int64_t k, Epilogue<T> epilogue) {
  const std::int64_t n = epilogue.columns;
  const auto tiles_n = static_cast<unsigned>((n + kNaiveTile - 1) / kNaiveTile);
  const std::int64_t column = std::int64_t{blockIdx.x % tiles_n} * kNaiveTile + threadIdx.x;
  const std::int64_t row = std::int64_t{blockIdx.x / tiles_n} * kNaiveTile + threadIdx.y;
  if (row >= m || column >= n) return;

  const T* a_row = a + row * k;
  const Columns<T, 1> output(epilogue, column);
  const float sum[] = {dot(a_row, b + column * k, k)};
  const float gate[] = {epilogue.gated ? dot(a_row, b + (n + column) * k, k) : 0};
  output.store(row, sum, gate, output.ahead(row));
}

// A product of a gradient: the same walk by strides.
template <class G>
__global__ void __launch_bounds__(kNaiveTile* kNaiveTile) gemm_naive_gradient(const __grid_constant__ G g) {
  const auto tiles_n = static_cast<unsigned>((g.n + kNaiveTile - 1) / kNaiveTile);
  const std::int64_t column = std::int64_t{blockIdx.x % tiles_n} * kNaiveTile + threadIdx.x;
  const std::int64_t row = std::int64_t{blockIdx.x / tiles_n} * kNaiveTile + threadIdx.y;
  if (row >= g.m || column >= g.n) return;

  float sum = 0, row_sum = 0;
  for (std::int64_t i = 0; i < g.k; ++i) {
    const float a = to_float(g.a[row * g.a_row + i * g.a_step]);
    sum = fmaf(a, to_float(g.b[column * g.b_row + i * g.b_step]), sum);
    row_sum += a;
  }
  g.store(row, column, sum);
  if (g.row_sums && column == 0) g.row_sums[row] = g.scale * row_sum;
}

}  // namespace

Status launch_naive(const Problem& problem, DType dtype, const Tensors& tensors, const Scratch&,
                    const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  const auto blocks = static_cast<unsigned>(tile_count(problem, kNaiveTile, kNaiveTile));
  if (!problem.forward())
    return with_gradient(problem, dtype, tensors, [&]<class G>(const G& gradient) {
      return launch_kernel("gemm_naive_gradient", gemm_naive_gradient<G>,
                           {.grid = blocks, .block = dim3(kNaiveTile, kNaiveTile)}, context.stream, gradient);
    });
  return with_type(dtype, [&]<class T>(T) {
    return launch_kernel("gemm_naive", gemm_naive<T>, {.grid = blocks, .block = dim3(kNaiveTile, kNaiveTile)},
                         context.stream, static_cast<const T*>(tensors.a), static_cast<const T*>(tensors.b), problem.m,
                         problem.k, Epilogue<T>(problem, tensors));
  });
}

}  // namespace noisefloor::gemm
