// Sums of channels over rows as products with ones by mma.sync (sm_80): what is added is made in fp32 and given to the
// tensor cores as two numbers of bf16, 16 bits. A block takes tiles of 64 channels, 8 a lane. In m16n8k16 lane (g, t)
// holds as A rows g and g + 8, k = 2 t and 2 t + 1 in both halves: with column g of two rows of a tile, t and t + 4,
// row g is a pair of channels, row g + 8 the next one, and k counts rows, a pair's two channels side by side. B[k][n]
// is 1 where k and n are both even or both odd, so that column n of D holds the sums of even or of odd channels.
#pragma once

#include <cstdint>

#include "kernels/device/vector.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor {

inline constexpr int kChannelThreads = 256, kChannelColumns = 8;  // columns of eight channels

// The first of a lane's eight channels; of lanes behind the last one, whose sums are not read, the last eight.
__device__ __forceinline__ std::int64_t channel_of_lane(std::int64_t channels) {
  const std::int64_t first = (static_cast<std::int64_t>(blockIdx.y) * kChannelColumns + threadIdx.x % 32 / 4) * 8;
  return min(first, channels - 8);
}

// sum += the eight channels of two rows, which are used up.
__device__ __forceinline__ void add_rows_by_mma(float (&sum)[2][4], float (&rows)[2][8], std::uint32_t selector) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    std::uint32_t words[2][4];
#pragma unroll
    for (int row = 0; row < 2; ++row)
#pragma unroll
      for (int i = 0; i < 8; i += 2) {
        float first, second;
        words[row][i / 2] = pack_pair<__nv_bfloat16>(rows[row][i], rows[row][i + 1]);
        unpack_pair<__nv_bfloat16>(words[row][i / 2], first, second);
        rows[row][i] -= first;
        rows[row][i + 1] -= second;
      }
#pragma unroll
    for (int m = 0; m < 2; ++m)
      ptx::mma_m16n8k16<__nv_bfloat16>(
          sum[m], {words[0][2 * m], words[0][2 * m + 1], words[1][2 * m], words[1][2 * m + 1]}, selector, selector);
  }
}

// The sums over `rows` rows of two numbers a channel to partial [2, channels]; load(row, u, v) makes those of the
// lane's channels.
template <class Load>
__device__ __forceinline__ void add_channels_by_mma(std::int64_t rows, std::int64_t channels, const Load& load,
                                                    float* partial) {
  constexpr int kWarps = kChannelThreads / 32, kWarpRows = 8, kChannels = kChannelColumns * 8;
  __shared__ float shared[2][kWarps][kChannels];
  const int warp = static_cast<int>(threadIdx.x) / 32, g = static_cast<int>(threadIdx.x) % 32 / 4;
  const int t = static_cast<int>(threadIdx.x) % 4;
  const std::uint32_t selector = g % 2 == 0 ? 0x00003f80u : 0x3f800000u;  // one and zero; zero and one
  float sum[2][2][4] = {};
  for (std::int64_t base = warp * kWarpRows; base < rows; base += kWarps * kWarpRows) {
    float numbers[2][2][8];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = base + t + 4 * half;
      load(min(row, rows - 1), numbers[0][half], numbers[1][half]);
      if (row < rows) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) numbers[0][half][i] = numbers[1][half][i] = 0;
    }
    add_rows_by_mma(sum[0], numbers[0], selector);
    add_rows_by_mma(sum[1], numbers[1], selector);
  }
  if (t == 0) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      shared[0][warp][g * 8 + i] = sum[0][i / 4][i % 4];
      shared[1][warp][g * 8 + i] = sum[1][i / 4][i % 4];
    }
  }
  __syncthreads();
  const int within = static_cast<int>(threadIdx.x) % kChannels, which = static_cast<int>(threadIdx.x) / kChannels;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.y) * kChannels + within;
  if (which >= 2 || channel >= channels) return;
  float total = 0;
#pragma unroll
  for (int other = 0; other < kWarps; ++other) total += shared[which][other][within];
  partial[which * channels + channel] = total;
}

}  // namespace noisefloor
