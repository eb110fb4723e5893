// The epilogue of the ptx_sm90a products: accumulators (in Wgmma's layout) are finished in registers, put into shared
// memory by stmatrix, a subtile of 64 rows at a time, and stored from there. Device code only.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/device/vector.cuh"
#include "kernels/ptx/elect.cuh"
#include "kernels/ptx/fence.cuh"
#include "kernels/ptx/ldmatrix.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/ring.cuh"
#include "kernels/ptx/stmatrix.cuh"
#include "kernels/ptx/tma.cuh"

namespace noisefloor::product {

// What happens to an accumulator, known at compile time so that the common cases are free of branches.
struct Finish {
  enum class Residual { none, maybe, always };

  bool act = false, gate = false;
  bool shift = false;  // rows may belong to several images, each with a shift of its own
  Residual residual = Residual::maybe;
  bool blend = false, gain = false;
  bool weighs = false;  // gain is a factor of the residual alone

  friend constexpr bool operator==(const Finish&, const Finish&) = default;
};

// A lane's row of a subtile, of which it finds the blocks of 8 columns. stmatrix and ldmatrix: lane l addresses row
// l % 8 of matrix l / 8; matrices 0 and 1 are the two row halves of a block, 2 and 3 those of the next block.
template <int kColumns, bool kSwizzled>
class SubtileRow {
 public:
  __device__ __forceinline__ SubtileRow() {
    constexpr int kRow = kColumns * 2;  // bytes
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = static_cast<int>(threadIdx.x) % 128 / 32 * 16 + lane % 16;
    const int swizzle = kSwizzled ? row / (128 / kRow) % (kRow / 16) : 0;
    first_ = row * kRow + (lane / 16 ^ swizzle) * 16;
  }
  // kCount blocks from `at` on, of both row halves.
  template <int kCount>
  __device__ __forceinline__ void load(std::uint32_t subtile, int at, std::uint32_t (&to)[2][4]) const {
#pragma unroll
    for (int i = 0; i + 1 < kCount; i += 2)
      ptx::ldmatrix_x4(to[0][i], to[1][i], to[0][i + 1], to[1][i + 1], subtile + block(at + i));
    if constexpr (kCount % 2 == 1)
      ptx::ldmatrix_x2(to[0][kCount - 1], to[1][kCount - 1], subtile + block(at + kCount - 1));
  }
  template <int kCount>
  __device__ __forceinline__ void store(std::uint32_t subtile, int at, const std::uint32_t (&from)[2][4]) const {
#pragma unroll
    for (int i = 0; i + 1 < kCount; i += 2)
      ptx::stmatrix_x4(subtile + block(at + i), from[0][i], from[1][i], from[0][i + 1], from[1][i + 1]);
    if constexpr (kCount % 2 == 1)
      ptx::stmatrix_x2(subtile + block(at + kCount - 1), from[0][kCount - 1], from[1][kCount - 1]);
  }

 private:
  // Of an even block, where rows are swizzled.
  __device__ __forceinline__ std::uint32_t block(int i) const {
    return static_cast<std::uint32_t>(kSwizzled ? first_ ^ i * 16 : first_ + i * 16);
  }

  int first_;
};

// The buffers of a warpgroup's stores by TMA, which drain while the next subtile is finished. `barrier` is a hardware
// barrier for the warpgroup alone. With two or more, one barrier a subtile is enough, and one ahead of the first.
template <int kBuffers, int kBytes>
struct StoreBuffers {
  std::uint32_t staging, barrier;
  ptx::Ring& ring;
  int warp = static_cast<int>(threadIdx.x) % 128 / 32;

  __device__ __forceinline__ std::uint32_t at() const {
    return staging + static_cast<std::uint32_t>(ring.stage * kBytes);
  }
  // The next subtile's is free; `known`: who filled it with a residual has seen to that.
  __device__ __forceinline__ void await(bool known) const {
    if constexpr (kBuffers > 1) return;
    if (!known && warp == 0 && ptx::elect_one()) ptx::tma_store_wait_read<0>();
    ptx::named_barrier_sync(barrier, 128);
  }
  // A subtile is written, by all; store(), by one thread.
  template <class Store>
  __device__ __forceinline__ void hand_over(bool known, const Store& store) const {
    ptx::fence_proxy_async_shared();  // of the writes of the store's subtile, and of the reads of the residual's
    if constexpr (kBuffers > 1)
      if (!known && warp == 0 && ptx::elect_one())
        ptx::tma_store_wait_read<kBuffers - 2>();  // the next subtile's buffer is free
    ptx::named_barrier_sync(barrier, 128);
    if (warp == 0 && ptx::elect_one()) store();
  }
};

// kBlocks blocks of 8 columns of a thread's pairs (Wgmma), from block `first` of the accumulator and column `column` of
// the tile on, finished and packed: of row half `half` (0: row, 1: row + 8), or, kHalves 2, of both. words[h][i], in
// which the residual's pair arrives (or zero), becomes the pair of block first + i; others[h][i] is that of a blend.
// `terms` know what belongs to the lane's pairs: factor(column) and addend(column); gate_addend(column), gate(v, sum);
// add_shift(half, column, v, w); activate(v), blended(v, other), gain().
template <class T, Finish kFinish, int kHalves, int kBlocks, int kCount, class Terms>
__device__ __forceinline__ void finish_blocks(const float (&acc)[kCount], int first, int column, int half,
                                              const Terms& terms, std::uint32_t (&words)[2][4],
                                              const std::uint32_t (&others)[2][4]) {
  static_assert(!kFinish.gate || !(kFinish.shift || kFinish.act),
                "a gate comes behind a shift, and has the activation");
  float v[kHalves][2 * kBlocks];
#pragma unroll
  for (int i = 0; i < kBlocks; ++i) {
    const float2 factor = terms.factor(column + 8 * i), add = terms.addend(column + 8 * i);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int at = 4 * (first + i) + 2 * (half + h);
      float &low = v[h][2 * i], &high = v[h][2 * i + 1];
      low = fmaf(factor.x, acc[at], add.x), high = fmaf(factor.y, acc[at + 1], add.y);
      if constexpr (kFinish.gate) {
        const float2 gate = terms.gate_addend(column + 8 * i);
        low = terms.gate(low, fmaf(factor.x, acc[at + kCount / 2], gate.x));
        high = terms.gate(high, fmaf(factor.y, acc[at + 1 + kCount / 2], gate.y));
      }
      if constexpr (kFinish.shift) terms.add_shift(half + h, column + 8 * i, low, high);
    }
  }
#pragma unroll
  for (int h = 0; h < kHalves; ++h) {
    if constexpr (kFinish.act) terms.activate(v[h]);
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      std::uint32_t& word = words[half + h][i];
      float low = v[h][2 * i], high = v[h][2 * i + 1];
      if constexpr (kFinish.residual != Finish::Residual::none) {
        float added_low, added_high;
        unpack_pair<T>(word, added_low, added_high);
        if constexpr (kFinish.weighs)
          low = fmaf(terms.gain(), added_low, low), high = fmaf(terms.gain(), added_high, high);
        else
          low += added_low, high += added_high;
      }
      if constexpr (kFinish.blend) {
        float other_low, other_high;
        unpack_pair<T>(others[half + h][i], other_low, other_high);
        low = terms.blended(low, other_low), high = terms.blended(high, other_high);
      }
      if constexpr (kFinish.gain) low *= terms.gain(), high *= terms.gain();
      word = pack_pair<T>(low, high);
    }
  }
}

// A warpgroup's accumulator of 64 rows x kTileColumns (with a gate, as many again) in subtiles of kColumns. `way`:
//   begin(subtile)   returns the shared address where it may be written now
//   load<kBlocks>(row, subtile, block, words, others)   the residual of its blocks, and of a blend
//   end(subtile)     all is written
// A loop of subtiles, and of kStep blocks, in each of which the accumulator moves up: code that runs once a launch has
// to come from L2 (docs/experiments/gemm, "code that runs once").
template <class T, Finish kFinish, int kTileColumns, int kColumns, bool kSwizzled, int kStep, int kHalves, int kCount,
          class Terms, class Way>
__device__ __forceinline__ void store_accumulator(float (&acc)[kCount], const Terms& terms, const Way& way) {
  constexpr int kBlocks = kColumns / 8, kTileBlocks = kTileColumns / 8;
  const SubtileRow<kColumns, kSwizzled> row;
#pragma unroll 1
  for (int subtile = 0; subtile * kBlocks < kTileBlocks; ++subtile) {
    const std::uint32_t target = way.begin(subtile);
    // Blocks of the accumulator from `block` on, which lie behind `done` others of the subtile.
    const auto write = [&]<int kSome>(int done, int block, std::integral_constant<int, kSome>) {
      std::uint32_t words[2][4] = {}, others[2][4] = {};
      way.template load<kSome>(row, subtile, done + block, words, others);
#pragma unroll
      for (int half = 0; half < 2; half += kHalves)
        finish_blocks<T, kFinish, kHalves, kSome>(acc, block, subtile * kColumns + 8 * (done + block), half, terms,
                                                  words, others);
      row.template store<kSome>(target, done + block, words);
    };
    const int blocks = kTileBlocks % kBlocks == 0 ? kBlocks : min(kTileBlocks - subtile * kBlocks, kBlocks);
#pragma unroll 1
    for (int done = 0; done < blocks; done += kStep) {
#pragma unroll
      for (int block = 0; block + 4 <= kStep; block += 4) write(done, block, std::integral_constant<int, 4>{});
      if constexpr (kStep % 4 != 0) write(done, kStep / 4 * 4, std::integral_constant<int, kStep % 4>{});
      if constexpr (kStep < kTileBlocks) {
#pragma unroll
        for (int i = 0; i + 4 * kStep < kCount; ++i) acc[i] = acc[i + 4 * kStep];
      }
    }
    way.end(subtile);
  }
}

// The partial sums of a block's share of a split tile, in its DSMEM buffer (DsmemBuffer): the splits' one behind the
// other.
struct Partials {
  const float* dsmem;
  int splits, floats;  // of one split

  // Adds 8 columns of all splits, always in their order, so that the result does not depend on timing.
  __device__ __forceinline__ void sum(int at, float (&sum)[8]) const {
#pragma unroll
    for (float& x : sum) x = 0;
#pragma unroll 2
    for (int s = 0; s < splits; ++s) {
      const float* from = dsmem + s * floats + at;
      const float4 low = *reinterpret_cast<const float4*>(from);
      const float4 high = *reinterpret_cast<const float4*>(from + 4);
      sum[0] += low.x, sum[1] += low.y, sum[2] += low.z, sum[3] += low.w;
      sum[4] += high.x, sum[5] += high.y, sum[6] += high.z, sum[7] += high.w;
    }
  }
};

}  // namespace noisefloor::product
