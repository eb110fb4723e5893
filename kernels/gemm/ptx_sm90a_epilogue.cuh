// The epilogues of ptx_sm90a: from accumulator registers, and from the partial sums of a split-K cluster. Device code
// only.
#pragma once

#include <cstdint>

#include "kernels/core/vector.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/ptx/cluster.cuh"

namespace noisefloor::gemm {

// Where a block's tile lies: rows [row0, rows) and output columns [column0, columns) of D.
struct TilePosition {
  std::int64_t row0;
  std::int64_t rows;
  int column0;
  int columns;
};

// Four lanes that hold 4 words each exchange them: lane i's word j becomes lane j's word i. Its own inverse.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&word)[4], int lane) {
  const bool odd = lane & 1;
  const bool high = lane & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? word[i] : word[i + 1], 1);
    (odd ? word[i] : word[i + 1]) = got;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t got = __shfl_xor_sync(0xffffffffu, high ? word[i] : word[i + 2], 2);
    (high ? word[i] : word[i + 2]) = got;
  }
}

// The activation of 8 values, its switch outside the loop.
template <class T>
__device__ __forceinline__ void activate_8(Activation act, float (&v)[8]) {
  switch (act) {
    case Activation::silu:
#pragma unroll
      for (float& x : v) x = times_sigmoid<T>(x, x);
      break;
    case Activation::gelu:
#pragma unroll
      for (float& x : v) x = gelu<T>(x);
      break;
    case Activation::gelu_tanh:
#pragma unroll
      for (float& x : v) x = gelu_tanh<T>(x);
      break;
    default:
      break;
  }
}

// The bias of the tile's kBlockN rows of B (column0 onward; geglu: half values, half gates) goes by way of shared
// memory: each thread of a warpgroup loads a pair before the products begin, so that nobody waits for it, and writes it
// as floats when the accumulator is done. Pairs outside D are zero.
template <class T, int kBlockN>
__device__ __forceinline__ std::uint32_t load_bias_pair(const Epilogue<T>& epilogue, int column0) {
  const int row = static_cast<int>(threadIdx.x) % 128 * 2;
  const int half = epilogue.gated() ? kBlockN / 2 : kBlockN;
  const int column = column0 + row % half;
  if (epilogue.bias == nullptr || row >= kBlockN || column >= epilogue.n) return 0;
  const T* from = epilogue.bias + column + (row >= half ? epilogue.n : 0);
  return __ldg(reinterpret_cast<const unsigned*>(from));
}
template <class T, int kBlockN>
__device__ __forceinline__ void write_bias_pair(std::uint32_t pair, float* bias) {
  const int row = static_cast<int>(threadIdx.x) % 128 * 2;
  float2 floats;
  unpack_pair<T>(pair, floats.x, floats.y);
  if (row < kBlockN) *reinterpret_cast<float2*>(bias + row) = floats;
}

// Writes a warpgroup's 64 x kBlockN accumulator (geglu: values in the first half of the columns, gates in the second).
// A thread holds pairs of columns (Wgmma); four such pairs of four 8-column blocks change places within each quad of
// lanes, so that a lane stores 16 bytes and a quad 64 contiguous bytes. The residual comes in by the reverse exchange.
template <class T, int kBlockN, bool kGated>
__device__ __forceinline__ void store_accumulator(const float (&acc)[kBlockN / 2], const float* bias,
                                                  const Epilogue<T>& epilogue, T* d, const TilePosition& at) {
  constexpr int kBlocks = kBlockN / 8 / (kGated ? 2 : 1);  // 8-column blocks of D
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int quad_lane = lane % 4;
  const std::int64_t row = at.row0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int group = 0; group < kBlocks; group += 4) {
    const int my_block = group + quad_lane;
    const int my_column = at.column0 + 8 * my_block;
    const bool column_ok = my_block < kBlocks && my_column < at.columns;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t r = row + 8 * half;
      const bool ok = column_ok && r < at.rows;
      std::uint32_t words[4] = {0, 0, 0, 0};
      if (epilogue.residual) {
        uint4 loaded{0, 0, 0, 0};
        if (ok) loaded = load_16_bytes<CacheHint::read_only>(epilogue.residual + r * epilogue.n + my_column);
        words[0] = loaded.x, words[1] = loaded.y, words[2] = loaded.z, words[3] = loaded.w;
        transpose_quad(words, lane);
      }
      float v[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int block = group + i;
        if (block >= kBlocks) continue;
        const int column = 8 * block + 2 * quad_lane;
        const int index = 4 * block + 2 * half;
        const float2 add = *reinterpret_cast<const float2*>(bias + column);
        v[2 * i] = fmaf(epilogue.scale, acc[index], add.x);
        v[2 * i + 1] = fmaf(epilogue.scale, acc[index + 1], add.y);
        if constexpr (kGated) {
          const float2 add_gate = *reinterpret_cast<const float2*>(bias + kBlockN / 2 + column);
          v[2 * i] = epilogue.gate(v[2 * i], fmaf(epilogue.scale, acc[index + kBlockN / 4], add_gate.x));
          v[2 * i + 1] = epilogue.gate(v[2 * i + 1], fmaf(epilogue.scale, acc[index + kBlockN / 4 + 1], add_gate.y));
        }
      }
      if constexpr (!kGated) activate_8<T>(epilogue.act, v);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float low = 0;
        float high = 0;
        if (epilogue.residual) unpack_pair<T>(words[i], low, high);
        words[i] = pack_pair<T>(v[2 * i] + low, v[2 * i + 1] + high);
      }
      transpose_quad(words, lane);
      if (ok) store_16_bytes(d + r * epilogue.n + my_column, make_uint4(words[0], words[1], words[2], words[3]));
    }
  }
}

// Floats between rows of a partial tile in shared memory: 8 more than the tile, so that the 8-byte writes of half a
// warp (4 rows of 8 floats) cover all 32 banks once.
template <int kBlockN>
inline constexpr int kPartialStride = kBlockN + 8;

template <int kBlockN>
__device__ __forceinline__ void write_partial(const float (&acc)[kBlockN / 2], float* partial) {
  const int thread = static_cast<int>(threadIdx.x);
  float* row = partial + (thread / 32 * 16 + thread % 32 / 4) * kPartialStride<kBlockN> + thread % 4 * 2;
#pragma unroll
  for (int i = 0; i < kBlockN / 8; ++i) {
    *reinterpret_cast<float2*>(row + 8 * i) = make_float2(acc[4 * i], acc[4 * i + 1]);
    *reinterpret_cast<float2*>(row + 8 * kPartialStride<kBlockN> + 8 * i) = make_float2(acc[4 * i + 2], acc[4 * i + 3]);
  }
}

// Adds 8 columns of the partial tiles of `splits` blocks (ranks first, first + step, ...), always in this order.
__device__ __forceinline__ void sum_partials(std::uint32_t address, int first, int step, int splits, float (&sum)[8]) {
#pragma unroll
  for (float& x : sum) x = 0;
#pragma unroll 4
  for (int s = 0; s < splits; ++s) {
    const std::uint32_t remote = ptx::map_to_rank(address, static_cast<std::uint32_t>(first + s * step));
    const float4 low = ptx::load_cluster(remote);
    const float4 high = ptx::load_cluster(remote + 16);
    sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
    sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
  }
}

__device__ __forceinline__ void scale_and_bias(float scale, const float* bias, float (&v)[8]) {
  const float4 low = *reinterpret_cast<const float4*>(bias);
  const float4 high = *reinterpret_cast<const float4*>(bias + 4);
  const float add[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = fmaf(scale, v[i], add[i]);
}

// Reduces and stores this block's share, block_m / splits rows, of the tile whose partial sums lie in the cluster.
template <class T, int kBlockM, int kBlockN>
__device__ __forceinline__ void reduce_and_store(std::uint32_t partial, int first, int step, int splits, int share,
                                                 const float* bias, const Epilogue<T>& epilogue, T* d,
                                                 const TilePosition& at) {
  const int rows = kBlockM / splits;
  const int chunks = kBlockN / 8 / (epilogue.gated() ? 2 : 1);
  constexpr int kThreads = 2 * kBlockM;
  for (int item = static_cast<int>(threadIdx.x); item < rows * chunks; item += kThreads) {
    const int tile_row = share * rows + item / chunks;
    const int tile_column = item % chunks * 8;
    const std::int64_t row = at.row0 + tile_row;
    const int column = at.column0 + tile_column;
    if (row >= at.rows || column >= at.columns) continue;
    const std::uint32_t address =
        partial + static_cast<std::uint32_t>(tile_row * kPartialStride<kBlockN> + tile_column) * 4;
    float v[8];
    sum_partials(address, first, step, splits, v);
    scale_and_bias(epilogue.scale, bias + tile_column, v);
    if (epilogue.gated()) {
      float gates[8];
      sum_partials(address + kBlockN / 2 * 4, first, step, splits, gates);
      scale_and_bias(epilogue.scale, bias + kBlockN / 2 + tile_column, gates);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = epilogue.gate(v[i], gates[i]);
    } else {
      activate_8<T>(epilogue.act, v);
    }
    if (epilogue.residual) {
      float residual[8];
      load_vector<T, CacheHint::read_only>(epilogue.residual + row * epilogue.n + column, residual);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] += residual[i];
    }
    store_vector<T>(d + row * epilogue.n + column, v);
  }
}

}  // namespace noisefloor::gemm
