// groupnorm, tensor cores: tiled, with the statistics' sums done by mma.sync: sums as a product with a selector of
// ones, sums of squares as the diagonal of a product of the data with itself.
//
// Better than tiled: a thread spends 8 subtractions (of two elements each) and 6 mma on 16 elements, where tiled spends
// 16 conversions, 16 subtractions, 16 additions and 16 multiply-adds; and its tiles, 64 channels wide, share a problem
// out more finely. It stays bound by memory like tiled: the README says what that leaves to win.
//
// Requires: bf16 or fp16; channels a multiple of 8; an even number of channels per group; given statistics only for
// `coefficients`, where tiled's second kernel is all that is left.
// Bound: memory, two reads and one write.
// Numerics: x - shift is rounded to the row's dtype, and is exact where shift is 0 or x is between half and twice of it
// (Sterbenz): shift is the channel's value in the slab's first row where its first rows are near each other, else 0.
// Products exact, fp32 sums; Chan's formula above the slab.
// Source: original; the fragment layouts are the PTX ISA's, "Matrix Fragments for mma.m16n8k16".
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/groupnorm/groupnorm.h"
#include "kernels/groupnorm/slabs.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::groupnorm {
namespace {

constexpr int kTileColumns = 8;
constexpr int kWarps = kSlabThreads / 32;
constexpr int kWarpRows = 8;  // of one mma: k = 16 is 8 rows of 2 channels
// Rows within a quarter of the largest have one sign and are within a factor of two: x - shift is exact (Sterbenz).
constexpr float kNear = 0.25f;

// Both halves of `a` minus those of `b`, rounded to T.
template <class T>
__device__ __forceinline__ std::uint32_t subtract_pairs(std::uint32_t a, std::uint32_t b) {
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 d = __hsub2(reinterpret_cast<const __half2&>(a), reinterpret_cast<const __half2&>(b));
    return reinterpret_cast<const std::uint32_t&>(d);
  } else {
    const __nv_bfloat162 d =
        __hsub2(reinterpret_cast<const __nv_bfloat162&>(a), reinterpret_cast<const __nv_bfloat162&>(b));
    return reinterpret_cast<const std::uint32_t&>(d);
  }
}

template <class T>
__device__ __forceinline__ void load_deviations(const T* row, bool valid, const std::uint32_t (&shift)[4],
                                                std::uint32_t (&d)[4]) {
  const uint4 v = valid ? load_16_bytes(row) : make_uint4(shift[0], shift[1], shift[2], shift[3]);
  d[0] = subtract_pairs<T>(v.x, shift[0]);
  d[1] = subtract_pairs<T>(v.y, shift[1]);
  d[2] = subtract_pairs<T>(v.z, shift[2]);
  d[3] = subtract_pairs<T>(v.w, shift[3]);
}

// Sets those channels of `shift` to 0 whose values are not near each other. There x is seldom far larger than its
// deviation (one odd row in a long slab of equal ones is the worst), so that fp32 can do without a shift; and one far
// from the mean would cost x - shift its last digits. `near_row` and `far_row` are this lane's two of the slab's first
// 8 rows; the other three lanes of its columns have the rest.
template <class T>
__device__ __forceinline__ void keep_common_shifts(const uint4& near_row, const uint4& far_row,
                                                   std::uint32_t (&shift)[4]) {
  const std::uint32_t rows[2][4] = {{near_row.x, near_row.y, near_row.z, near_row.w},
                                    {far_row.x, far_row.y, far_row.z, far_row.w}};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    std::uint32_t kept = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float a[2], b[2];
      unpack_pair<T>(rows[0][i], a[0], a[1]);
      unpack_pair<T>(rows[1][i], b[0], b[1]);
      float low = fminf(a[half], b[half]), high = fmaxf(a[half], b[half]);
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) {
        low = fminf(low, __shfl_xor_sync(0xffffffff, low, lanes));
        high = fmaxf(high, __shfl_xor_sync(0xffffffff, high, lanes));
      }
      if (high - low <= kNear * fmaxf(fabsf(low), fabsf(high))) kept |= 0xffffu << (16 * half);
    }
    shift[i] &= kept;
  }
}

// Fragments, with g = lane / 4 and t = lane % 4: a lane reads the 16 bytes (4 channel pairs) of column g in rows t and
// t + 4. As the A operand of m16n8k16 (row g: pair 2m, row g + 8: pair 2m + 1; k: rows of the tile, a pair's two
// channels side by side) they need no shuffle. Sums: B[k][n] = 1 where k and n are both even or both odd, so that
// column n of D holds the sums of the even or the odd channels. Squares: B = A^T of one half of the rows, whose
// registers are the same; its diagonal D[r][r] is the sum of both channels' squares of pair r, and lies in the lane
// with t = g / 2. Of the products 15 of 16 rows of the sums' and 7 of 8 columns of the squares' are not wanted.
template <class T>
__global__ void __launch_bounds__(kSlabThreads)
    mma_statistics_kernel(Problem p, const T* x, SlabPlan plan, float* partials) {
  __shared__ float shared_sum[kWarps][kTileColumns * 8];
  __shared__ float shared_squares[kWarps][kTileColumns * 4];
  __shared__ std::uint32_t shared_shift[kTileColumns * 4];
  static_assert(sizeof(shared_sum) + sizeof(shared_squares) + sizeof(shared_shift) == 3 * 1024 + 128);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const std::int64_t first = blockIdx.x * plan.slab_rows;
  const std::int64_t rows = min(plan.slab_rows, p.hw - first);
  const std::int64_t tile_channel = static_cast<std::int64_t>(blockIdx.y) * kTileColumns * 8;
  const bool inside = tile_channel + g * 8 < p.channels;
  // Lanes beyond the last column read the last one; nothing reads their sums.
  const std::int64_t channel = inside ? tile_channel + g * 8 : p.channels - 8;
  const T* slab = x + (blockIdx.z * p.hw + first) * p.channels + channel;

  const uint4 shift_bits = load_16_bytes(slab);
  std::uint32_t shift[4] = {shift_bits.x, shift_bits.y, shift_bits.z, shift_bits.w};
  keep_common_shifts<T>(load_16_bytes(slab + min(std::int64_t{t}, rows - 1) * p.channels),
                        load_16_bytes(slab + min(std::int64_t{t + 4}, rows - 1) * p.channels), shift);
  const std::uint32_t one = pack_pair<T>(1.0f, 0.0f);
  const std::uint32_t selector = g % 2 == 0 ? one : one << 16;
  float sum[2][4] = {}, squares[2][2][4] = {};
  for (std::int64_t r = warp * kWarpRows + t; r - t < rows; r += kWarps * kWarpRows) {
    std::uint32_t low[4], high[4];
    load_deviations(slab + r * p.channels, r < rows, shift, low);
    load_deviations(slab + (r + 4) * p.channels, r + 4 < rows, shift, high);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const std::uint32_t a[4] = {low[2 * m], low[2 * m + 1], high[2 * m], high[2 * m + 1]};
      ptx::mma_m16n8k16<T>(sum[m], a, selector, selector);
      ptx::mma_m16n8k16<T>(squares[m][0], a, a[0], a[2]);
      ptx::mma_m16n8k16<T>(squares[m][1], a, a[1], a[3]);
    }
  }
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    if (t == 0) {
#pragma unroll
      for (int i = 0; i < 4; ++i) shared_sum[warp][g * 8 + m * 4 + i] = sum[m][i];
    }
    if (t == g / 2) {
      shared_squares[warp][g * 4 + m * 2] = g % 2 == 0 ? squares[m][0][0] : squares[m][0][1];
      shared_squares[warp][g * 4 + m * 2 + 1] = g % 2 == 0 ? squares[m][1][2] : squares[m][1][3];
    }
  }
  if (warp == 0 && t == 0) {
#pragma unroll
    for (int i = 0; i < 4; ++i) shared_shift[g * 4 + i] = shift[i];
  }
  __syncthreads();

  // A thread per channel pair. The pair's M2 belongs to its two channels together; a group has both or neither.
  const int pair = static_cast<int>(threadIdx.x);
  if (pair >= kTileColumns * 4 || tile_channel + 2 * pair >= p.channels) return;
  float s0 = 0, s1 = 0, q = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    s0 += shared_sum[w][2 * pair];
    s1 += shared_sum[w][2 * pair + 1];
    q += shared_squares[w][pair];
  }
  const std::int64_t c = tile_channel + 2 * pair;
  float shift0, shift1;
  unpack_pair<T>(shared_shift[pair], shift0, shift1);
  float* partial = partials + (blockIdx.z * plan.slabs + blockIdx.x) * 2 * p.channels + c;
  const float scale = 1.0f / static_cast<float>(rows);
  partial[0] = shift0 + s0 * scale;
  partial[1] = shift1 + s1 * scale;
  const float m2 = fmaxf(q - (s0 * s0 + s1 * s1) * scale, 0.0f);
  partial[p.channels] = 0.5f * m2;
  partial[p.channels + 1] = 0.5f * m2;
}

SlabPlan mma_plan(const Problem& p, int sm_count) {
  return plan_slabs(p, 8, sm_count, kTileColumns);
}

}  // namespace

std::size_t tensor_core_sm80_workspace_bytes(const Problem& p, DType, const DeviceInfo& device) {
  return slab_workspace_bytes(p, mma_plan(p, device.sm_count));
}

Status launch_tensor_core_sm80(const Problem& p, DType dtype, const Tensors& tensors, const Scratch& scratch,
                               const LaunchContext& context) {
  const Tensors t = unpacked(p, dtype, tensors);
  const SlabPlan plan = mma_plan(p, context.device->sm_count);
  return with_half_type(dtype, [&]<class T>(T) {
    return launch_slabs<T, 8>("groupnorm tensor_core_sm80", p, t, plan, kTileColumns, scratch, context,
                              [&](dim3 grid, float* partials) {
                                return launch_kernel("groupnorm mma_statistics_kernel", mma_statistics_kernel<T>,
                                                     {.grid = grid, .block = kSlabThreads}, context.stream, p,
                                                     static_cast<const T*>(t.x), plan, partials);
                              });
  });
}

}  // namespace noisefloor::groupnorm
