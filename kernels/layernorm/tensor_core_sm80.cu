// layernorm, tensor cores: the moments of 16 rows a warp by mma.sync: sums as a product with ones, sums of squares as
// the diagonal of a product of the rows with themselves.
//
// What differs from tiled: a lane spends 2 mma on the sums of 16 elements, then 16 subtractions and 4 mma on their
// squares, where tiled spends 16 each of subtractions, additions and multiply-adds. README.md: why it does not win.
//
// Fragments, with g = lane / 4 and t = lane % 4: a lane reads the 16 bytes (4 pairs) of column t in rows g and g + 8:
// as the A operand of m16n8k16 they need no shuffle, since a sum over k does not care which k stands where. Sums: B is
// all ones, every column of D holds them. Squares: B = A^T of one half of the rows, whose registers are the same; the
// diagonal D[r][r] lies in the lane with t = g / 2.
//
// Tile: 4 warps of 16 rows. Shared memory: none. Registers: 12 accumulators.
//
// Bound: memory; rows are read three times, from L1 or L2 after the first.
//
// Requires: bf16 or fp16; channels a multiple of 8, 32 or more; no residual, whose sum would be rounded to 16 bits to
// become an operand.
// Numerics: sums of the elements themselves, exact products; deviations from the mean are rounded to the row's dtype
// before they are squared, an unbiased error of half a unit in their last place that 32 channels or more average out.
// (Deviations from the row's first element, in one pass, leave an error in the mean that shows where that element lies
// four deviations out.)
// Source: original; the fragment layouts are the PTX ISA's, "Matrix Fragments for mma.m16n8k16".
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpRows = 16;
constexpr int kBlockRows = kThreads / 32 * kWarpRows;

// Both halves of `a` minus `mean`, rounded to T.
template <class T>
__device__ __forceinline__ std::uint32_t subtract(std::uint32_t a, float mean) {
  float low, high;
  unpack_pair<T>(a, low, high);
  return pack_pair<T>(low - mean, high - mean);
}

template <class T>
__global__ void __launch_bounds__(kThreads) tensor_core_kernel(const Arguments<T> a) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const std::uint32_t first = blockIdx.x * kBlockRows + threadIdx.x / 32 * kWarpRows;
  const auto row_at = [&](std::uint32_t row) {
    return static_cast<const T*>(a.t.x) + static_cast<std::int64_t>(min(row, a.rows - 1)) * a.vectors * 8;
  };
  const T *const low = row_at(first + g), *const high = row_at(first + g + 8);
  const auto load = [&](const T* row, int v) { return v < a.vectors ? load_16_bytes(row + v * 8) : uint4{}; };
  const std::uint32_t ones = pack_pair<T>(1.0f, 1.0f);
  float sum[4] = {};
#pragma unroll 2
  for (int base = 0; base < a.vectors; base += 4) {  // every lane alike
    const uint4 p = load(low, base + t), q = load(high, base + t);
    ptx::mma_m16n8k16<T>(sum, {p.x, q.x, p.y, q.y}, ones, ones);
    ptx::mma_m16n8k16<T>(sum, {p.z, q.z, p.w, q.w}, ones, ones);
  }
  const float means[2] = {sum[0] * a.length_inverse, sum[2] * a.length_inverse};

  float upper[4] = {}, lower[4] = {};
#pragma unroll 2
  for (int base = 0; base < a.vectors; base += 4) {
    const uint4 x = load(low, base + t), y = load(high, base + t);
    const bool inside = base + t < a.vectors;
    const std::uint32_t p[4] = {x.x, x.y, x.z, x.w}, q[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
    for (int m = 0; m < 4; m += 2) {
      const std::uint32_t d[4] = {inside ? subtract<T>(p[m], means[0]) : 0, inside ? subtract<T>(q[m], means[1]) : 0,
                                  inside ? subtract<T>(p[m + 1], means[0]) : 0,
                                  inside ? subtract<T>(q[m + 1], means[1]) : 0};
      ptx::mma_m16n8k16<T>(upper, d, d[0], d[2]);
      ptx::mma_m16n8k16<T>(lower, d, d[1], d[3]);
    }
  }
  // Row g's squares: column g of the upper product; row g + 8's: column g of the lower one.
  const int source = g * 4 + g / 2;
  const float squares[2] = {__shfl_sync(0xffffffffu, g % 2 == 0 ? upper[0] : upper[1], source),
                            __shfl_sync(0xffffffffu, g % 2 == 0 ? lower[2] : lower[3], source)};
  const Moments moments[2] = {{means[0], rsqrtf(squares[0] * a.length_inverse + a.eps)},
                              {means[1], rsqrtf(squares[1] * a.length_inverse + a.eps)}};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t row = first + g + 8 * half;
    if (row >= a.rows) return;
    const T* const x = half == 0 ? low : high;
#pragma unroll 2
    for (int v = t; v < a.vectors; v += 4) {
      float s[8];
      load_vector<T>(x + v * 8, s);
      finish_vector(a, moments[half], row, v, s);
    }
  }
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const Arguments<T> a = make_arguments<T>(p, t);
    tensor_core_kernel<T><<<(a.rows + kBlockRows - 1) / kBlockRows, kThreads, 0, context.stream>>>(a);
    return launch_status("layernorm tensor_core_kernel");
  });
}

}  // namespace noisefloor::layernorm
