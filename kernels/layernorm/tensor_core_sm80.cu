// layernorm, tensor cores: the moments of 16 rows a warp by mma.sync: sums as a product with ones, sums of squares as
// the diagonal of a product of the rows with themselves.
//
// What differs from tiled: a lane spends 8 subtractions of two elements and 6 mma on 16 elements where tiled spends 16
// each of conversions, subtractions, additions and multiply-adds. README.md: why it does not win.
//
// Fragments, with g = lane / 4 and t = lane % 4: a lane reads the 16 bytes (4 pairs) of column t in rows g and g + 8:
// as the A operand of m16n8k16 they need no shuffle, since a sum over k does not care which k stands where. Sums: B is
// all ones, every column of D holds them. Squares: B = A^T of one half of the rows, whose registers are the same; the
// diagonal D[r][r] lies in the lane with t = g / 2.
//
// Tile: 4 warps of 16 rows. Shared memory: none. Registers: 12 accumulators.
//
// Bound: memory; the second pass reads from L1 or L2, and holds no product.
//
// Requires: bf16 or fp16; channels a multiple of 8, 32 or more; no residual, whose sum would be rounded to 16 bits to
// become an operand.
// Numerics: d = x - origin (the row's first element) is rounded to the row's dtype before it is summed and squared, an
// unbiased error of half a unit in d's last place that 32 channels or more average out.
// Source: original; the fragment layouts are the PTX ISA's, "Matrix Fragments for mma.m16n8k16".
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpRows = 16;
constexpr int kBlockRows = kThreads / 32 * kWarpRows;

// Both halves of `a` minus `origin`, rounded to T.
template <class T>
__device__ __forceinline__ std::uint32_t subtract(std::uint32_t a, std::uint32_t origin) {
  float a0, a1, o0, o1;
  unpack_pair<T>(a, a0, a1);
  unpack_pair<T>(origin, o0, o1);
  return pack_pair<T>(a0 - o0, a1 - o1);
}

template <class T>
__device__ __forceinline__ void load_deviations(const T* row, bool inside, std::uint32_t origin,
                                                std::uint32_t (&d)[4]) {
  const uint4 v = inside ? load_16_bytes(row) : make_uint4(origin, origin, origin, origin);
  d[0] = subtract<T>(v.x, origin);
  d[1] = subtract<T>(v.y, origin);
  d[2] = subtract<T>(v.z, origin);
  d[3] = subtract<T>(v.w, origin);
}

template <class T>
__global__ void __launch_bounds__(kThreads) tensor_core_kernel(const Arguments<T> a) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const std::uint32_t first = blockIdx.x * kBlockRows + threadIdx.x / 32 * kWarpRows;
  const auto row_at = [&](std::uint32_t row) {
    return static_cast<const T*>(a.t.x) + static_cast<std::int64_t>(min(row, a.rows - 1)) * a.vectors * 8;
  };
  const T *const low = row_at(first + g), *const high = row_at(first + g + 8);
  const float origins[2] = {to_float(low[0]), to_float(high[0])};
  const std::uint32_t low_origin = pack_pair<T>(origins[0], origins[0]),
                      high_origin = pack_pair<T>(origins[1], origins[1]);
  const std::uint32_t ones = pack_pair<T>(1.0f, 1.0f);
  float sum[4] = {}, upper[4] = {}, lower[4] = {};
  for (int base = 0; base < a.vectors; base += 4) {  // every lane alike
    const int v = base + t;
    std::uint32_t p[4], q[4];
    load_deviations(low + v * 8, v < a.vectors, low_origin, p);
    load_deviations(high + v * 8, v < a.vectors, high_origin, q);
#pragma unroll
    for (int m = 0; m < 4; m += 2) {
      const std::uint32_t fragment[4] = {p[m], q[m], p[m + 1], q[m + 1]};
      ptx::mma_m16n8k16<T>(sum, fragment, ones, ones);
      ptx::mma_m16n8k16<T>(upper, fragment, p[m], p[m + 1]);
      ptx::mma_m16n8k16<T>(lower, fragment, q[m], q[m + 1]);
    }
  }
  // Row g's squares: column g of the upper product; row g + 8's: column g of the lower one.
  const int source = g * 4 + g / 2;
  const float squares[2] = {__shfl_sync(0xffffffffu, g % 2 == 0 ? upper[0] : upper[1], source),
                            __shfl_sync(0xffffffffu, g % 2 == 0 ? lower[2] : lower[3], source)};
  const Moments moments[2] = {finish_moments(a, origins[0], sum[0], squares[0]),
                              finish_moments(a, origins[1], sum[2], squares[1])};
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
