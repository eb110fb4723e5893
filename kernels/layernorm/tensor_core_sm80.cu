// layernorm, tensor cores: the moments of 16 rows a warp by mma.sync: sums as a product with ones, sums of squares as
// the diagonal of a product of the rows with themselves.
//
// What differs from tiled: a lane spends 2 mma on the sums of 16 elements, then 16 subtractions and 4 mma on their
// squares, where tiled spends 16 each of subtractions, additions and multiply-adds. A residual takes 2 mma more: the
// sum of x + residual is that of x plus that of the residual. README.md: why it does not win.
//
// Requires: bf16 or fp16; channels a multiple of 8, 32 or more.
// Bound: memory; rows, and those of the residual, are read three times: long ones probably from DRAM each time.
// Numerics: sums of the elements themselves, exact products; x + residual in fp32; deviations from the mean are rounded
// to the row's dtype before they are squared, an unbiased error of half a unit in their last place that 32 channels or
// more average out.
// Source: original; the fragment layouts are the PTX ISA's, "Matrix Fragments for mma.m16n8k16".
#include "kernels/device/launch.cuh"
#include "kernels/layernorm/device.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::layernorm {
namespace {

constexpr int kThreads = 128;
constexpr int kWarpRows = 16;
constexpr int kBlockRows = kThreads / 32 * kWarpRows;

// Fragments, with g = lane / 4 and t = lane % 4: a lane reads the 16 bytes (4 pairs) of column t in rows g and g + 8:
// as the A operand of m16n8k16 they need no shuffle, since a sum over k does not care which k stands where. Sums: B is
// all ones, every column of D holds them. Squares: B = A^T of one half of the rows, whose registers are the same; the
// diagonal D[r][r] lies in the lane with t = g / 2.
template <class T, bool kResidual>
__global__ void __launch_bounds__(kThreads) tensor_core_kernel(const Arguments<T> a) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, t = lane % 4;
  const std::uint32_t first = blockIdx.x * kBlockRows + threadIdx.x / 32 * kWarpRows;
  const auto place = [&](std::uint32_t row) { return place_of(a, min(row, a.rows - 1), 0); };
  const std::int64_t low = place(first + g), high = place(first + g + 8);
  const auto load = [&](const void* from, std::int64_t row, int v) {
    return v < a.vectors ? load_16_bytes(static_cast<const T*>(from) + row + v * 8) : uint4{};
  };
  const std::uint32_t ones = pack_pair<T>(1.0f, 1.0f);
  float sum[4] = {};
  const auto add = [&](const void* from, int v) {
    const uint4 p = load(from, low, v), q = load(from, high, v);
    ptx::mma_m16n8k16<T>(sum, {p.x, q.x, p.y, q.y}, ones, ones);
    ptx::mma_m16n8k16<T>(sum, {p.z, q.z, p.w, q.w}, ones, ones);
  };
#pragma unroll 2
  for (int base = 0; base < a.vectors; base += 4) {  // every lane alike
    add(a.t.x, base + t);
    if constexpr (kResidual) add(a.t.residual, base + t);
  }
  const float means[2] = {sum[0] * a.length_inverse, sum[2] * a.length_inverse};

  // Vector v of a row's s.
  const auto load_sum = [&](std::int64_t row, int v, float(&s)[8]) {
    uint4 residual{};
    if constexpr (kResidual) residual = load(a.t.residual, row, v);
    sum_vector<T>(load(a.t.x, row, v), residual, kResidual, s);
  };
  const auto deviations = [&](std::int64_t row, int v, float mean, std::uint32_t(&d)[4]) {
    float s[8];
    load_sum(row, v, s);
#pragma unroll
    for (int m = 0; m < 4; ++m) d[m] = v < a.vectors ? pack_pair<T>(s[2 * m] - mean, s[2 * m + 1] - mean) : 0;
  };
  float upper[4] = {}, lower[4] = {};
#pragma unroll 2
  for (int base = 0; base < a.vectors; base += 4) {
    std::uint32_t p[4], q[4];
    deviations(low, base + t, means[0], p);
    deviations(high, base + t, means[1], q);
#pragma unroll
    for (int m = 0; m < 4; m += 2) {
      const std::uint32_t d[4] = {p[m], q[m], p[m + 1], q[m + 1]};
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
#pragma unroll 2
    for (int v = t; v < a.vectors; v += 4) {
      float s[8];
      load_sum(half == 0 ? low : high, v, s);
      finish_vector(a, moments[half], row, v, s);
    }
  }
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  return with_half_type(dtype, [&]<class T>(T) {
    const Arguments<T> a = make_arguments<T>(p, t);
    const std::uint32_t blocks = (a.rows + kBlockRows - 1) / kBlockRows;
    const auto kernel = a.t.residual ? tensor_core_kernel<T, true> : tensor_core_kernel<T, false>;
    return launch_kernel("layernorm tensor_core_kernel", kernel, {.grid = blocks, .block = kThreads}, context.stream,
                         a);
  });
}

}  // namespace noisefloor::layernorm
