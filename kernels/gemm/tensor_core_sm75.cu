// gemm, tensor cores from sm_75: mma.sync m16n8k8 on fp16 fragments read by ldmatrix. The next step of k is loaded into
// registers while this one is multiplied, then stored to the other of two buffers in shared memory.
//
// Better than tiled: a warp multiplies 16x8x8 in one instruction, elements stay 16 bits wide in shared memory (half the
// traffic), and ldmatrix hands them to the lanes in the layout that the tensor core takes.
//
// Requires: fp16 (bf16 products need sm_80), k % 8 == 0 (16-byte loads).
// Bound: tensor pipe at 4096^3; expected limiter: issue slots (m16n8k8 is half of the sm_80 product), and a prefetch of
// one step only.
// Numerics: fp32 sums in the tensor core.
// Source: PTX ISA (mma, ldmatrix); otherwise original.
#include "kernels/device/launch.cuh"
#include "kernels/gemm/launchers.h"
#include "kernels/gemm/mma_output.cuh"
#include "kernels/ptx/mma.cuh"

namespace noisefloor::gemm {
namespace {

// 128x128, warp tiles of 64x64; a thread has 128 sums, 20 registers of fragments and 32 in flight.
using Sm75Tile = product::MmaTile<kSm75Tile, kSm75Tile, 32, 2, 2, 1, 2>;
static_assert(Sm75Tile::kThreads == 128 && Sm75Tile::kSharedBytes == 32 * 1024);

// One thread's 16-byte chunks of a step: the same chunk of two rows of A and two rows of B.
struct Staged {
  static constexpr int kChunks = Sm75Tile::kBlockK / 8;
  static constexpr int kRows = Sm75Tile::kThreads / kChunks;
  static constexpr int kPasses = kSm75Tile / kRows;

  static_assert(kRows % 16 == 0, "for geglu rows of B alternate, 8 values and 8 gates: two passes keep the same kind");

  const __half *a, *b;  // of pass 0, where it has such a row
  std::int64_t a_pass, b_pass;
  int left;            // of k, from this thread's chunk on
  unsigned valid = 0;  // bit side * kPasses + pass
  uint4 chunks[2][kPasses];
  int offset;

  __device__ __forceinline__ Staged(const __half* a_all, const __half* b_all, std::int64_t m, std::int64_t n,
                                    std::int64_t k, std::int64_t tile_m, std::int64_t tile_n, bool gated) {
    const int row = static_cast<int>(threadIdx.x) / kChunks;
    const int chunk = static_cast<int>(threadIdx.x) % kChunks;
    const std::int64_t a_row = tile_m * kSm75Tile + row;
    a = a_all + a_row * k + chunk * 8;
    b = b_all + b_row<Sm75Tile>(tile_n, row, n, gated) * k + chunk * 8;
    a_pass = kRows * k;
    b_pass = (gated ? kRows / 2 : kRows) * k;
    left = static_cast<int>(k) - chunk * 8;
    offset = swizzled<Sm75Tile::kBlockK>(row, chunk);
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      valid |= static_cast<unsigned>(a_row + i * kRows < m) << i;
      valid |= static_cast<unsigned>(b_row<Sm75Tile>(tile_n, row + i * kRows, n, gated) >= 0) << (kPasses + i);
    }
  }

  // The next step of k.
  __device__ __forceinline__ void load() {
    const unsigned mask = left > 0 ? valid : 0;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      chunks[0][i] = chunks[1][i] = make_uint4(0, 0, 0, 0);
      if (mask >> i & 1) chunks[0][i] = load_16_bytes<CacheHint::read_only>(a + i * a_pass);
      if (mask >> (kPasses + i) & 1) chunks[1][i] = load_16_bytes<CacheHint::read_only>(b + i * b_pass);
    }
    a += Sm75Tile::kBlockK;
    b += Sm75Tile::kBlockK;
    left -= Sm75Tile::kBlockK;
  }

  __device__ __forceinline__ void store(unsigned char* stage) const {
#pragma unroll
    for (int side = 0; side < 2; ++side)
#pragma unroll
      for (int i = 0; i < kPasses; ++i)
        *reinterpret_cast<uint4*>(stage + side * (Sm75Tile::kStageBytes / 2) + i * kRows * Sm75Tile::kBlockK * 2 +
                                  offset) = chunks[side][i];
  }
};

__global__ void __launch_bounds__(Sm75Tile::kThreads, 2)
    gemm_sm75(const __half* __restrict__ a, const __half* __restrict__ b, std::int64_t m, std::int64_t k,
              Epilogue<__half> epilogue) {
  __shared__ alignas(128) unsigned char shared[Sm75Tile::kSharedBytes];
  const bool gated = epilogue.gated;
  const int columns = gated ? kSm75Tile / 2 : kSm75Tile;  // of D
  const auto tiles_n = static_cast<unsigned>((epilogue.columns + columns - 1) / columns);
  const unsigned tile_m = blockIdx.x / tiles_n;
  const unsigned tile_n = blockIdx.x % tiles_n;
  const WarpCoordinate warp = warp_coordinate<Sm75Tile>();

  Staged staged(a, b, m, epilogue.columns, k, tile_m, tile_n, gated);
  Sums<Sm75Tile> sums = {};
  staged.load();
  const auto steps = static_cast<int>((k + Sm75Tile::kBlockK - 1) / Sm75Tile::kBlockK);
  for (int k_step = 0; k_step < steps; ++k_step) {
    unsigned char* stage = shared + k_step % 2 * Sm75Tile::kStageBytes;
    staged.store(stage);
    __syncthreads();  // also: everyone has read the other buffer, which the next step overwrites
    staged.load();
    const std::uint32_t a_tile = ptx::shared_address(stage);
#pragma unroll
    for (int step = 0; step < Sm75Tile::kStepsK; ++step) {
      Fragments<Sm75Tile> f;
      f.load_b(a_tile + Sm75Tile::kStageBytes / 2, warp, step);
#pragma unroll
      for (int i = 0; i < Sm75Tile::kFragmentsM; ++i) {
        f.load_a(i, a_tile, warp, step);
#pragma unroll
        for (int j = 0; j < Sm75Tile::kFragmentsN; ++j) {
          ptx::mma_m16n8k8(sums[i][j], f.a[i][0], f.a[i][1], f.b[j][0]);
          ptx::mma_m16n8k8(sums[i][j], f.a[i][2], f.a[i][3], f.b[j][1]);
        }
      }
    }
  }

  const Columns<__half, kDrained> outputs(epilogue, std::int64_t{tile_n} * columns + drain_column(columns));
  product::drain_sums<Sm75Tile>(sums, shared, gated, ToOutput<__half>{outputs, std::int64_t{tile_m} * kSm75Tile, m});
}

}  // namespace

Status launch_tensor_core_sm75(const Problem& problem, DType, const Tensors& tensors, const Scratch&,
                               const LaunchContext& context) {
  if (const Status status = check_pointers(problem, tensors); !status.ok()) return status;
  const auto blocks =
      static_cast<unsigned>(tile_count(problem, kSm75Tile, problem.gated() ? kSm75Tile / 2 : kSm75Tile));
  return launch_kernel("gemm_sm75", gemm_sm75, {.grid = blocks, .block = Sm75Tile::kThreads}, context.stream,
                       static_cast<const __half*>(tensors.a), static_cast<const __half*>(tensors.b), problem.m,
                       problem.k, Epilogue<__half>(problem, tensors));
}

}  // namespace noisefloor::gemm
