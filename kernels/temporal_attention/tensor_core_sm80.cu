// temporal_attention on tensor cores: a warp per pixel and head, operands straight from global memory into mma.sync
// fragments, 16 bytes per lane and access, no shared memory. A block's 8 warps take neighbouring heads and pixels, so
// that a frame's rows are neighbours in memory.
//
// Better than tiled: the arithmetic all but vanishes, and all loads of a pixel and head are in flight at once.
//
// Requires: bf16 or fp16, head size a multiple of 8, a layout with contiguous heads.
// Bound: memory, at every problem: the compulsory bytes over DRAM bandwidth.
// Numerics: fp32 sums in the tensor core, exponentials by ex2.approx, weights rounded to 16 bits for the second
// product.
// Source: PTX ISA (mma fragments); the order of loads is original.
#include "kernels/core/cuda_status.h"
#include "kernels/device/dispatch.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/temporal_attention/temporal_attention.h"
#include "kernels/temporal_attention/warp_softmax.cuh"

namespace noisefloor::temporal_attention {
namespace {

constexpr int kThreads = 32 * static_cast<int>(kSm80Units);
constexpr int kChunk = 64;  // elements of the head at a time

__device__ __forceinline__ uint4 load_if(bool inside, const void* from) {
  return inside ? load_16_bytes<CacheHint::read_only_once>(from) : make_uint4(0, 0, 0, 0);
}

__device__ __forceinline__ std::uint32_t word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Values of one chunk: frames 2c, 2c + 1, 2c + 8, 2c + 9 of each 16, elements 8g .. 8g + 7.
template <class T, int kSixteens>
__device__ __forceinline__ void load_values(const T* values, std::int64_t stride, int frames, int d, int dim,
                                            uint4 (&v)[kSixteens][4]) {
  const int c = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
  for (int s = 0; s < kSixteens; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int frame = 16 * s + 2 * c + i % 2 + i / 2 * 8;
      v[s][i] = load_if(frame < frames && d < dim, values + frame * stride + d);
    }
}

// An mma's k index may run through the head in any order that queries and keys share, and its n index through the
// output's elements in any order. So lane (g, c) = (lane / 4, lane % 4) loads
//   * of queries and keys: frames g, g + 8, ...; elements 8c .. 8c + 7 of every 32, which are its part of two k-steps;
//   * of values: frames 2c, 2c + 1, 2c + 8, 2c + 9 of every 16; elements 8g .. 8g + 7 of every 64. Element t of those
//     eight is column g of the t-th product; two frames are interleaved by byte_perm into a B register.
// Outputs then come out as 16 neighbouring elements per lane: two 16-byte stores. kSixteens: frames / 16, rounded up; a
// warp has 1 x 2 tiles of logits, or 2 x 4.
template <class T, int kSixteens>
__global__ void __launch_bounds__(kThreads)
    temporal_attention_sm80(const Shape shape, const T* __restrict__ q, const T* __restrict__ k,
                            const T* __restrict__ v, T* __restrict__ out) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, c = static_cast<int>(threadIdx.x) % 4;
  const auto heads = static_cast<std::uint32_t>(shape.heads), pixels = static_cast<std::uint32_t>(shape.inner);
  const std::uint32_t unit = blockIdx.x * (kThreads / 32) + threadIdx.x / 32;
  if (unit >= static_cast<std::uint32_t>(shape.outer) * pixels * heads) return;
  const std::uint32_t head = unit % heads, pixel = unit / heads % pixels, video = unit / heads / pixels;
  const int frames = static_cast<int>(shape.seq_q), dim = static_cast<int>(shape.dim);
  const T* const queries = q + shape.q.at(video, pixel, 0, head);
  const T* const keys = k + shape.k.at(video, pixel, 0, head);
  const T* const values = v + shape.v.at(video, pixel, 0, head);
  T* const outputs = out + shape.out.at(video, pixel, 0, head);

  float logits[kSixteens][2 * kSixteens][4] = {};
  uint4 value[kSixteens][4];
  for (int d0 = 0; d0 < dim; d0 += kChunk) {
    uint4 a[kChunk / 32][2 * kSixteens], b[kChunk / 32][2 * kSixteens];
#pragma unroll
    for (int half = 0; half < kChunk / 32; ++half)
#pragma unroll
      for (int i = 0; i < 2 * kSixteens; ++i) {
        const int d = d0 + 32 * half + 8 * c, frame = 8 * i + g;
        const bool inside = frame < frames && d < dim;
        a[half][i] = load_if(inside, queries + frame * shape.q.seq + d);
        b[half][i] = load_if(inside, keys + frame * shape.k.seq + d);
      }
    if (d0 == 0) load_values<T, kSixteens>(values, shape.v.seq, frames, 8 * g, dim, value);
#pragma unroll
    for (int half = 0; half < kChunk / 32; ++half)
#pragma unroll
      for (int step = 0; step < 2; ++step)
#pragma unroll
        for (int m = 0; m < kSixteens; ++m) {
          const uint4 &low = a[half][2 * m], &high = a[half][2 * m + 1];
          const std::uint32_t fragment[4] = {word(low, 2 * step), word(high, 2 * step), word(low, 2 * step + 1),
                                             word(high, 2 * step + 1)};
#pragma unroll
          for (int n = 0; n < 2 * kSixteens; ++n)
            ptx::mma_m16n8k16<T>(logits[m][n], fragment, word(b[half][n], 2 * step), word(b[half][n], 2 * step + 1));
        }
  }

  float inverse[kSixteens][2];
  std::uint32_t weights[kSixteens][kSixteens][4];
#pragma unroll
  for (int m = 0; m < kSixteens; ++m) {
    softmax_rows<2 * kSixteens>(logits[m], frames, shape.scale * attention::kLog2E, inverse[m]);
#pragma unroll
    for (int step = 0; step < kSixteens; ++step) weights_fragment<T, 2 * kSixteens>(logits[m], step, weights[m][step]);
  }

  for (int d0 = 0; d0 < dim; d0 += kChunk) {
    if (d0 > 0) load_values<T, kSixteens>(values, shape.v.seq, frames, d0 + 8 * g, dim, value);
#pragma unroll
    for (int m = 0; m < kSixteens; ++m) {
      float sums[8][4] = {};
#pragma unroll
      for (int step = 0; step < kSixteens; ++step)
#pragma unroll
        for (int t = 0; t < 8; ++t) {
          const unsigned halves = t % 2 == 0 ? 0x5410u : 0x7632u;  // the low or the high 16 bits of both words
          const auto pair = [&](int i) {
            return __byte_perm(word(value[step][i], t / 2), word(value[step][i + 1], t / 2), halves);
          };
          ptx::mma_m16n8k16<T>(sums[t], weights[m][step], pair(0), pair(2));
        }
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const int frame = 16 * m + 8 * row + g;
#pragma unroll
        for (int side = 0; side < 2; ++side) {
          const int d = d0 + 16 * c + 8 * side;
          float line[8];
#pragma unroll
          for (int t = 0; t < 8; ++t) line[t] = sums[t][2 * row + side] * inverse[m][row];
          if (frame < frames && d < dim) store_vector<T, CacheHint::once>(outputs + frame * shape.out.seq + d, line);
        }
      }
    }
  }
}

}  // namespace

Status launch_tensor_core_sm80(const Problem& problem, DType dtype, const Tensors& t, const Scratch&,
                               const LaunchContext& context) {
  if (const Status status = check_pointers(t); !status.ok()) return status;
  return with_half_type(dtype, [&]<class T>(T) {
    const auto kernel = problem.frames <= 16 ? temporal_attention_sm80<T, 1> : temporal_attention_sm80<T, 2>;
    const auto blocks = static_cast<unsigned>((problem.units() + kSm80Units - 1) / kSm80Units);
    return launch_kernel("temporal_attention_sm80", kernel, {.grid = blocks, .block = kThreads}, context.stream,
                         problem.shape(), static_cast<const T*>(t.q), static_cast<const T*>(t.k),
                         static_cast<const T*>(t.v), static_cast<T*>(t.out));
  });
}

}  // namespace noisefloor::temporal_attention
