// What layouts nn and tn add to the mma.sync kernels: loads of matrices whose rows are k, and the sums of A's rows.
// Device code only.
#pragma once

#include <cstdint>

#include "kernels/gemm/mma_output.cuh"
#include "kernels/ptx/cp_async.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::gemm {

// Of a stage of kLines lines of kLength elements of a matrix, one thread's share of the copies: chunk `chunk` of every
// kRows-th line. Stages follow each other down the matrix (kDown) or along its lines. Beyond it zeros arrive.
template <class T, int kThreads, int kLines, int kLength, bool kDown>
struct Copies {
  static constexpr int kChunks = kLength / 8, kRows = kThreads / kChunks;
  static_assert(kRows % 8 == 0 && kLines % kRows == 0, "the permutation of chunks repeats every 8 lines");

  const T* from;  // of the next stage
  int length;     // of the matrix's lines; extents are at most 2^24
  int lines, at;  // that are left from the thread's first on, of the matrix; where in a line this is
  std::uint32_t offset;

  __device__ __forceinline__ Copies(const T* matrix, std::int64_t all_lines, std::int64_t all_length,
                                    std::int64_t first_line, std::int64_t first)
      : length(static_cast<int>(all_length)) {
    const int chunk = static_cast<int>(threadIdx.x) % kChunks, row = static_cast<int>(threadIdx.x) / kChunks;
    offset = static_cast<std::uint32_t>(swizzled<kLength>(row, chunk));
    at = static_cast<int>(first) + chunk * 8;
    lines = kDown && at >= length ? 0 : static_cast<int>(all_lines - first_line) - row;
    from = matrix + (first_line + row) * length + at;
  }
  __device__ __forceinline__ void issue(std::uint32_t stage) {
    const int some = kDown || at < length ? lines : 0;
#pragma unroll
    for (int i = 0; i < kLines; i += kRows)
      ptx::cp_async_16(stage + offset + i * kLength * 2, from + std::int64_t{i} * length, i < some);
    if constexpr (kDown)
      lines -= kLines, from += std::int64_t{kLines} * length;
    else
      at += kLength, from += kLength;
  }
};

// A tile of layout nn or tn, and its loader.
template <class Base, Layout kLayout>
struct GradientTile : Base {
  static constexpr bool kColumnsA = kLayout == Layout::tn, kColumnsB = true;
  template <class T>
  struct Loader {
    static constexpr int kK = Base::kBlockK, kM = Base::kBlockM;
    Copies<T, Base::kThreads, kColumnsA ? kK : kM, kColumnsA ? kM : kK, kColumnsA> a;
    Copies<T, Base::kThreads, kK, Base::kBlockN, true> b;

    __device__ __forceinline__ Loader(const T* a_all, const T* b_all, std::int64_t m, std::int64_t n, std::int64_t k,
                                      std::int64_t tile_m, std::int64_t tile_n, std::int64_t k_begin, bool)
        : a(a_all, kColumnsA ? k : m, kColumnsA ? m : k, kColumnsA ? k_begin : tile_m * kM,
            kColumnsA ? tile_m * kM : k_begin),
          b(b_all, k, n, k_begin, tile_n * Base::kBlockN) {}
    __device__ __forceinline__ void issue(std::uint32_t stage) {
      a.issue(stage);
      b.issue(stage + kM * kK * 2);
    }
  };
};

// The sums of A's rows, as products with ones: of each fragment's row in all of its columns.
template <class T, class Tile>
struct RowSums {
  float (&sums)[Tile::kFragmentsM][4];
  bool wanted;  // by all of a warp

  __device__ __forceinline__ void operator()(const Fragments<Tile>& fragments) const {
    if (!wanted) return;
    const std::uint32_t ones = pack_pair<T>(1, 1);
#pragma unroll
    for (int i = 0; i < Tile::kFragmentsM; ++i) ptx::mma_m16n8k16<T>(sums[i], fragments.a[i], ones, ones);
  }
  // take(row, sum) of a tile's rows, behind drain_sums and by way of the same shared memory: warps that shared k add
  // up.
  template <class Take>
  __device__ __forceinline__ void drain(float* shared, const Take& take) const {
    const WarpCoordinate warp = warp_coordinate<Tile>();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    __syncthreads();
    if (wanted && lane % 4 == 0)
#pragma unroll
      for (int i = 0; i < Tile::kFragmentsM; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          shared[warp.k * Tile::kBlockM + warp.m * Tile::kWarpM + i * 16 + lane / 4 + 8 * half] = sums[i][2 * half];
    __syncthreads();
    for (int row = static_cast<int>(threadIdx.x); row < Tile::kBlockM; row += Tile::kThreads) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < Tile::kWarpsK; ++k) sum += shared[k * Tile::kBlockM + row];
      take(row, sum);
    }
  }
};

}  // namespace noisefloor::gemm
