// Changes of layout of 16-bit elements: each image's [rows, columns] to [columns, rows], both multiples of 8. A thread
// reads 8 x 8 elements as eight times 16 bytes and turns them in its registers, with four byte permutations per 16
// bytes, so that shared memory, which brings what was read along rows to where it is written along columns, is stored
// and loaded in 16 bytes too: 2 instructions per 16 bytes, where element by element they are 12.
//
// Banks: chunk k (8 rows) of column c lies at place k ^ (c / 8 % 8) of the column. Eight lanes that store have the same
// k and eight values of c / 8, eight that load the same c and eight of k: all 32 banks either way.
#pragma once

#include <algorithm>

#include "kernels/device/launch.cuh"
#include "kernels/device/vector.cuh"
#include "kernels/elementwise/elementwise.h"

namespace noisefloor::elementwise {

inline constexpr int kLargeBlockTile = 128;  // 256 threads, 32 KiB
inline constexpr int kSmallBlockTile = 64;   // 64 threads, 8 KiB
inline constexpr int kLargeTilesPerSm = 3;   // resident

template <int kTile>
inline constexpr int kBlockThreads = kTile* kTile / 64;

template <int kTile>
__global__ void __launch_bounds__(kBlockThreads<kTile>, kTile == kLargeBlockTile ? kLargeTilesPerSm : 12)
    block_transpose_kernel(const std::uint16_t* from, std::uint16_t* to, int rows, int columns,
                           std::int64_t image_elements) {
  constexpr int kChunks = kTile / 8;  // of 16 bytes: in a row of the tile, and in a column
  __shared__ uint4 tile[kTile * kChunks];
  const std::uint16_t* const in = from + blockIdx.z * image_elements;
  std::uint16_t* const out = to + blockIdx.z * image_elements;
  const int row0 = static_cast<int>(blockIdx.y) * kTile, column0 = static_cast<int>(blockIdx.x) * kTile;
  const int thread = static_cast<int>(threadIdx.x);

  const int across = thread % kChunks, down = thread / kChunks;  // this thread's 8 x 8
  const int row = row0 + down * 8, column = column0 + across * 8;
  if (row < rows && column < columns) {
    union {
      uint4 row[8];
      std::uint32_t pair[8][4];  // columns 2 j and 2 j + 1 of row i
    } v;
#pragma unroll
    for (int i = 0; i < 8; ++i) v.row[i] = load_16_bytes(in + static_cast<std::int64_t>(row + i) * columns + column);
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const std::uint32_t half = j % 2 == 0 ? 0x5410 : 0x7632;  // the lower of both words, or the upper
      const auto rows_of = [&](int i) { return __byte_perm(v.pair[i][j / 2], v.pair[i + 1][j / 2], half); };
      tile[(across * 8 + j) * kChunks + (down ^ (across % 8))] =
          make_uint4(rows_of(0), rows_of(2), rows_of(4), rows_of(6));
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int at = i * kBlockThreads<kTile> + thread, c = at / kChunks, k = at % kChunks;
    if (row0 + k * 8 >= rows || column0 + c >= columns) continue;
    store_16_bytes(out + static_cast<std::int64_t>(column0 + c) * rows + row0 + k * 8,
                   tile[c * kChunks + (k ^ (c / 8 % 8))]);
  }
}

template <int kTile>
Status launch_block_transpose(const Tensors& t, std::int64_t images, std::int64_t rows, std::int64_t columns,
                              const LaunchContext& context) {
  const auto tiles = [](std::int64_t extent) { return static_cast<unsigned>((extent + kTile - 1) / kTile); };
  const dim3 grid(tiles(columns), tiles(rows), static_cast<unsigned>(images));  // along the rows that are read
  return launch_kernel("elementwise block_transpose_kernel", block_transpose_kernel<kTile>,
                       {.grid = grid, .block = kBlockThreads<kTile>}, context.stream,
                       static_cast<const std::uint16_t*>(t.a), static_cast<std::uint16_t*>(t.y), static_cast<int>(rows),
                       static_cast<int>(columns), rows * columns);
}

// The large tile where it fills the SMs and is filled.
inline Status block_transpose(const Tensors& t, std::int64_t images, std::int64_t rows, std::int64_t columns,
                              const LaunchContext& context) {
  const auto tiles = [](std::int64_t extent) { return (extent + kLargeBlockTile - 1) / kLargeBlockTile; };
  const bool large = std::min(rows, columns) >= kLargeBlockTile &&
                     images * tiles(rows) * tiles(columns) >= kLargeTilesPerSm * context.device->sm_count;
  return large ? launch_block_transpose<kLargeBlockTile>(t, images, rows, columns, context)
               : launch_block_transpose<kSmallBlockTile>(t, images, rows, columns, context);
}

}  // namespace noisefloor::elementwise
